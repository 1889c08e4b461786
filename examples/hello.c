/* The C interface: writes an object, seals it, and reads it by its name, as another process would.
 *
 *   cc hello.c $(pkg-config --cflags --libs gshm) -o hello && ./hello
 */
#include <stdio.h>
#include <string.h>

#include <gshm/gshm.h>

static int check(int result, const char* what) {
    if (result != 0) fprintf(stderr, "%s: %s\n", what, gshm_last_error());
    return result;
}

int main(void) {
    const char text[] = "hello from an object";
    char read[sizeof text] = "";
    gshm_client* client = NULL;
    gshm_object* object = NULL;
    gshm_connect_options options = GSHM_CONNECT_OPTIONS_INIT;
    if (check(gshm_connect(&options, &client), "connect") != 0) return 1;

    gshm_create_spec create = GSHM_CREATE_SPEC_INIT;
    create.name = "examples/hello";
    create.size_bytes = sizeof text;
    create.flags = GSHM_NO_MAP;
    int failed = check(gshm_create(client, &create, &object), "create");
    failed = failed || check(gshm_copy_in(object, 0, text, sizeof text), "write");
    failed = failed || check(gshm_seal(object), "seal");
    gshm_close(object);

    object = NULL;
    failed = failed || check(gshm_open(client, "examples/hello", GSHM_NO_MAP, &object), "open");
    failed = failed || check(gshm_copy_out(object, 0, read, sizeof read), "read");
    gshm_close(object);
    failed = failed || check(gshm_unlink(client, "examples/hello"), "unlink");
    gshm_disconnect(client);
    if (failed || strcmp(read, text) != 0) return 1;
    printf("%s (libgshm %s, header %s)\n", read, gshm_version(), GSHM_VERSION);
    return 0;
}
