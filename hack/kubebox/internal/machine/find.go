package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Running machine, known by its init process.
type Running struct {
	StateDir string
	Name     string
	PID      int
}

// Find returns every machine that runs here, of this checkout or another. The processes themselves are the only record of it, so
// the answer is right even after a crash.
func Find() ([]Running, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []Running
	for _, f := range files {
		cmdline, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		if r, ok := parseCommand(string(cmdline)); ok && isInit(pid) {
			r.PID = pid
			out = append(out, r)
		}
	}
	return out, nil
}

func parseCommand(cmdline string) (Running, bool) {
	args := strings.Split(strings.TrimSuffix(cmdline, "\x00"), "\x00")
	if len(args) != 4 || args[0] != "kubebox" || args[1] != Applet {
		return Running{}, false
	}
	return Running{StateDir: args[2], Name: args[3]}, true
}

// isInit is true for the first process of a process namespace below this one.
func isInit(pid int) bool {
	inside, found := numberInside(pid)
	return found && inside == 1
}

// numberInside returns the number that a process has in the process namespace it runs in; false if that is this one.
func numberInside(pid int) (int, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if numbers, found := strings.CutPrefix(line, "NSpid:"); found {
			fields := strings.Fields(numbers)
			if len(fields) < 2 {
				return 0, false
			}
			inside, err := strconv.Atoi(fields[len(fields)-1])
			return inside, err == nil
		}
	}
	return 0, false
}

// KillProcess kills the process that has this number inside the machine, as a crash would end it.
func (r Running) KillProcess(inside int) error {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.PID))
	if err != nil {
		return fmt.Errorf("find the processes of machine %s: %w", r.Name, err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, f := range files {
		if s, err := os.Readlink(f); err != nil || s != space {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(f))))
		if err != nil {
			continue
		}
		if n, found := numberInside(pid); !found || n != inside {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d of machine %s: %w", inside, r.Name, err)
		}
		return nil
	}
	return fmt.Errorf("machine %s has no process %d any more", r.Name, inside)
}

// Kill ends the machine and returns when the kernel has ended all its processes.
func (r Running) Kill(ctx context.Context) error {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return nil // gone already
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return nil // gone already
	}
	for ctx.Err() == nil {
		// The descriptor becomes readable when the process, and with it its whole namespace, has ended.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((200 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for machine %s: %w", r.Name, err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("machine %s (process %d) does not end: %w", r.Name, r.PID, ctx.Err())
}

// Socket returns the path by which this process reaches a socket inside the machine.
func (r Running) Socket(path string) string { return fmt.Sprintf("/proc/%d/root%s", r.PID, path) }
