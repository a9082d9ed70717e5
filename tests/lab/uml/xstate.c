/* SPDX-FileCopyrightText: The lunshare authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For LD_PRELOAD with User-mode Linux on processors with AMX. It sets the floating
 * point registers of its processes from a buffer of 2,696 bytes; Linux refuses a
 * PTRACE_SETREGSET of NT_X86_XSTATE that is smaller than the processor's whole state
 * ("ptrace set fp regs failed, errno = 14"). So the whole state is read, what UML gives
 * is laid over its beginning, and the whole is set. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

static long call(long request, pid_t pid, void *address, void *data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

static long set_state(pid_t pid, void *address, struct iovec *given)
{
	static __thread char state[16384];
	struct iovec whole = { state, sizeof state };

	if (call(PTRACE_GETREGSET, pid, address, &whole) == 0 &&
	    given->iov_len < whole.iov_len) {
		memcpy(state, given->iov_base, given->iov_len);
		given = &whole;
	}
	return call(PTRACE_SETREGSET, pid, address, given);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	va_start(rest, request);
	pid_t pid = va_arg(rest, pid_t);
	void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
	va_end(rest);

	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE)
		return set_state(pid, address, data);
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA ||
	    request == PTRACE_PEEKUSER) {
		/* libc returns the word, the system call stores it. */
		long word, failed = call(request, pid, address, &word);
		if (failed)
			return failed;
		errno = 0;
		return word;
	}
	return call(request, pid, address, data);
}
