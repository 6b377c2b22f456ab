// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// VESCOMM_THREAD_SANITIZER is 1 in a build with ThreadSanitizer, and else 0.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define VESCOMM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VESCOMM_THREAD_SANITIZER 1
#endif
#endif
#if !defined(VESCOMM_THREAD_SANITIZER)
#define VESCOMM_THREAD_SANITIZER 0
#endif
