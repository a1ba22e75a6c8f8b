#include "textflag.h"

// Numbers of system calls, and of their arguments.
#define SYS_exit_group     94
#define SYS_nanosleep      101
#define SYS_rt_sigaction   134
#define SYS_rt_sigprocmask 135
#define SYS_prctl          167
#define SYS_clone          220
#define SYS_execve         221
#define SIG_SETMASK        2
#define NSIG               64
#define SIG_IGN            1
#define SIGSET_SIZE        8
#define PR_SET_NAME        15

// CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|CLONE_SYSVSEM, as in package runtime.
#define CLONE_FLAGS        0x50f00

// func startThread() int
TEXT ·startThread(SB), NOSPLIT, $0-8
	MOVD $SIG_SETMASK, R0
	MOVD $·allSignals(SB), R1
	MOVD $·mask(SB), R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigprocmask, R8
	SVC

	MOVD $CLONE_FLAGS, R0
	MOVD $·stack+4096(SB), R1
	AND  $~15, R1 // the kernel demands it
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $SYS_clone, R8
	SVC
	CBNZ R0, parent
	JMP  ·watch(SB)

parent:
	MOVD R0, ret+0(FP)
	MOVD $SIG_SETMASK, R0
	MOVD $·mask(SB), R1
	MOVD ZR, R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigprocmask, R8
	SVC
	RET

// watch is the thread. It has no goroutine, calls no function and receives no signal.
//
//	R19 the beats that it has seen
//	R20 the short pauses since
TEXT ·watch(SB), NOSPLIT|NOFRAME, $0
	MOVD $PR_SET_NAME, R0
	MOVD ·name(SB), R1
	MOVD $SYS_prctl, R8
	SVC

beat:
	MOVD ·beats(SB), R19
	MOVD ZR, R20
	MOVD $·longPause(SB), R21

sleep:
	MOVD R21, R0
	MOVD ZR, R1
	MOVD $SYS_nanosleep, R8
	SVC
	MOVD ·beats(SB), R22
	CMP  R19, R22
	BNE  beat
	MOVD ·limit(SB), R22
	CMP  R22, R20
	BHS  hung
	ADD  $1, R20
	MOVD $·shortPause(SB), R21
	JMP  sleep

hung:
	MOVWU ·exitOnly(SB), R22
	CBNZ  R22, exit
	MOVD  $NSIG, R19

	// Go's handlers must not run on this thread, which has no goroutine, and signals that
	// wait for them, such as SIGHUP, must not end the program: the system drops what is
	// ignored. What was ignored before stays so.
handlers:
	MOVD R19, R0
	MOVD ZR, R1
	MOVD $·action(SB), R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigaction, R8
	SVC
	MOVD ·action(SB), R22
	CMP  $SIG_IGN, R22
	BEQ  ignored
	MOVD R19, R0
	MOVD $·ignore(SB), R1
	MOVD ZR, R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigaction, R8
	SVC
	MOVD R19, R0
	MOVD $·defaultAction(SB), R1
	MOVD ZR, R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigaction, R8
	SVC

ignored:
	SUB  $1, R19
	CBNZ R19, handlers

	// The new program keeps the mask.
	MOVD $SIG_SETMASK, R0
	MOVD $·mask(SB), R1
	MOVD ZR, R2
	MOVD $SIGSET_SIZE, R3
	MOVD $SYS_rt_sigprocmask, R8
	SVC

	MOVD ·running(SB), R0
	MOVD ·argv(SB), R1
	MOVD ·envp(SB), R2
	MOVD $SYS_execve, R8
	SVC
	MOVD ·path(SB), R0
	MOVD ·argv(SB), R1
	MOVD ·envp(SB), R2
	MOVD $SYS_execve, R8
	SVC

exit:
	MOVD $1, R0
	MOVD $SYS_exit_group, R8
	SVC
	JMP  exit
