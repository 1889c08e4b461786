/* The C interface in a C11 program: layout and signatures at compile time, behaviour at run time. With GSHM_TEST_DIR, a
 * daemon's runtime folder, also the calls that need a daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include <gshm/gshm.h>

int checks_passed;
int checks_failed;

void check_(int ok, const char* file, int line, const char* text) {
    if (ok) {
        ++checks_passed;
        return;
    }
    ++checks_failed;
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
}

void check_status_(int status, int expected, const char* file, int line, const char* text) {
    int says_why = status >= 0 || gshm_last_error()[0] != '\0';
    if (status == expected && says_why) {
        ++checks_passed;
        return;
    }
    ++checks_failed;
    fprintf(stderr, "%s:%d: failed: %s gave %d (%s) instead of %d (%s)\n", file, line, text, status,
            status < 0 ? gshm_last_error() : "success", expected, expected < 0 ? strerror(-expected) : "success");
}

int main(void) {
    test_symbols();
    test_devices();
    test_bad_arguments();
    test_memory_without_daemon();
    test_no_daemon_there();
    const char* dir = getenv("GSHM_TEST_DIR");
    if (dir && *dir) {
        test_with_daemon(dir);
        test_structs(dir);
        test_flags(dir);
        test_since_0_2(dir);
        test_dlpack(dir);
    } else {
        printf("SKIP: what needs a daemon (GSHM_TEST_DIR is not set)\n");
    }
    printf("%d passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed ? 1 : 0;
}
