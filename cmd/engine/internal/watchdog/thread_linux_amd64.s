#include "textflag.h"

// Numbers of system calls, and of their arguments.
#define SYS_rt_sigaction   13
#define SYS_rt_sigprocmask 14
#define SYS_nanosleep      35
#define SYS_clone          56
#define SYS_execve         59
#define SYS_prctl          157
#define SYS_exit_group     231
#define SIG_SETMASK        2
#define NSIG               64
#define SIG_IGN            1
#define SIGSET_SIZE        8
#define PR_SET_NAME        15

// CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|CLONE_SYSVSEM, as in package runtime.
#define CLONE_FLAGS        0x50f00

// func startThread() int
TEXT ·startThread(SB), NOSPLIT, $0-8
	MOVQ $SYS_rt_sigprocmask, AX
	MOVQ $SIG_SETMASK, DI
	LEAQ ·allSignals(SB), SI
	LEAQ ·mask(SB), DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL

	MOVQ $SYS_clone, AX
	MOVQ $CLONE_FLAGS, DI
	LEAQ ·stack+4096(SB), SI
	XORQ DX, DX
	XORQ R10, R10
	XORQ R8, R8
	SYSCALL
	TESTQ AX, AX
	JNE  parent
	JMP  ·watch(SB)

parent:
	MOVQ AX, ret+0(FP)

	MOVQ $SYS_rt_sigprocmask, AX
	MOVQ $SIG_SETMASK, DI
	LEAQ ·mask(SB), SI
	XORQ DX, DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL
	RET

// watch is the thread. It has no goroutine, calls no function and receives no signal.
//
//	R12 the beats that it has seen
//	R13 the short pauses since
TEXT ·watch(SB), NOSPLIT|NOFRAME, $0
	MOVQ $SYS_prctl, AX
	MOVQ $PR_SET_NAME, DI
	MOVQ ·name(SB), SI
	SYSCALL

beat:
	MOVQ ·beats(SB), R12
	XORQ R13, R13
	LEAQ ·longPause(SB), DI

sleep:
	MOVQ $SYS_nanosleep, AX
	XORQ SI, SI
	SYSCALL
	CMPQ R12, ·beats(SB)
	JNE  beat
	CMPQ R13, ·limit(SB)
	JAE  hung
	INCQ R13
	LEAQ ·shortPause(SB), DI
	JMP  sleep

hung:
	CMPL ·exitOnly(SB), $0
	JNE  exit
	MOVQ $NSIG, R12

	// Go's handlers must not run on this thread, which has no goroutine, and signals that
	// wait for them, such as SIGHUP, must not end the program: the system drops what is
	// ignored. What was ignored before stays so.
handlers:
	MOVQ $SYS_rt_sigaction, AX
	MOVQ R12, DI
	XORQ SI, SI
	LEAQ ·action(SB), DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL
	CMPQ ·action(SB), $SIG_IGN
	JEQ  ignored
	MOVQ $SYS_rt_sigaction, AX
	MOVQ R12, DI
	LEAQ ·ignore(SB), SI
	XORQ DX, DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL
	MOVQ $SYS_rt_sigaction, AX
	MOVQ R12, DI
	LEAQ ·defaultAction(SB), SI
	XORQ DX, DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL

ignored:
	DECQ R12
	JNE  handlers

	// The new program keeps the mask.
	MOVQ $SYS_rt_sigprocmask, AX
	MOVQ $SIG_SETMASK, DI
	LEAQ ·mask(SB), SI
	XORQ DX, DX
	MOVQ $SIGSET_SIZE, R10
	SYSCALL

	MOVQ $SYS_execve, AX
	MOVQ ·running(SB), DI
	MOVQ ·argv(SB), SI
	MOVQ ·envp(SB), DX
	SYSCALL
	MOVQ $SYS_execve, AX
	MOVQ ·path(SB), DI
	MOVQ ·argv(SB), SI
	MOVQ ·envp(SB), DX
	SYSCALL

exit:
	MOVQ $SYS_exit_group, AX
	MOVQ $1, DI
	SYSCALL
	JMP  exit
