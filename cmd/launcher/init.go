package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// beInit returns what the first process of a container owes the others: it runs the program again as its child, passes signals
// on, and buries every orphan. Without that libvirt waits for ever for QEMU processes that have ended but are still listed. It
// returns the child's exit code.
func beInit() (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals) // before the child exists, so that none is missed
	//nolint:gosec // it is this very program with its own arguments
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ()})
	if err != nil {
		return 0, err
	}
	for s := range signals {
		if s != syscall.SIGCHLD {
			_ = child.Signal(s)
			continue
		}
		if code, ended := bury(child.Pid); ended {
			return code, nil
		}
	}
	return 0, errors.New("no more signals")
}

// bury waits for every process that has ended, and says whether the child was among them.
func bury(child int) (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return code, ended
		case pid == child && status.Exited():
			code, ended = status.ExitStatus(), true
		case pid == child && status.Signaled():
			code, ended = 128+int(status.Signal()), true
		}
	}
}
