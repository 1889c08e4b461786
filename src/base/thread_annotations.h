// Lock annotations, checked by clang's -Wthread-safety; empty for other compilers.
#pragma once

#if defined(__clang__)
#define GSHM_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GSHM_THREAD_ATTRIBUTE(x)
#endif

#define CAPABILITY(name) GSHM_THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY GSHM_THREAD_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(mutex) GSHM_THREAD_ATTRIBUTE(guarded_by(mutex))
#define REQUIRES(...) GSHM_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) GSHM_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) GSHM_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) GSHM_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) GSHM_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) GSHM_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(...) GSHM_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define ASSERT_SHARED_CAPABILITY(...) GSHM_THREAD_ATTRIBUTE(assert_shared_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS GSHM_THREAD_ATTRIBUTE(no_thread_safety_analysis)
