/* A program of 0.1: every call of its header, compiled with that header and run with the library of today. The files of
 * this folder do not change. With GSHM_TEST_DIR, a daemon's runtime folder, also the calls that need a daemon, which it
 * ends. */
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
        test_rest_with_daemon(dir);
    } else {
        printf("SKIP: what needs a daemon (GSHM_TEST_DIR is not set)\n");
    }
    printf("%d passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed ? 1 : 0;
}
