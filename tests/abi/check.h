/* Checks that count and report failures and continue; active in every build. */
#ifndef GSHM_TESTS_ABI_CHECK_H
#define GSHM_TESTS_ABI_CHECK_H

extern int checks_passed;
extern int checks_failed;

void check_(int ok, const char* file, int line, const char* text);
void check_status_(int status, int expected, const char* file, int line, const char* text);

/* The condition must hold. */
#define CHECK(condition) check_(!!(condition), __FILE__, __LINE__, #condition)
/* The call must return exactly this: 0 or a negative errno; then gshm_last_error() must have something to say. */
#define CHECK_STATUS(call, expected) check_status_((call), (expected), __FILE__, __LINE__, #call)
#define CHECK_OK(call) CHECK_STATUS(call, 0)

void test_symbols(void);
void test_devices(void);
void test_bad_arguments(void);
void test_memory_without_daemon(void);
void test_no_daemon_there(void);
void test_with_daemon(const char* dir);
void test_structs(const char* dir);
void test_flags(const char* dir);
void test_since_0_2(const char* dir);
void test_dlpack(const char* dir);
/* Calls the deleter of a tensor. */
struct DLManagedTensor;
void test_delete_tensor(struct DLManagedTensor* tensor);

#endif
