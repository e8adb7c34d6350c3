//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
	"github.com/berth-vm/berth/internal/imagevm"
)

// defaultPath is the PATH that container runtimes set if an image has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// runProgram runs the image's program until it ends.
func runProgram(o imagevm.Orders) (imagevm.Ended, error) {
	who, err := lookUp(o.User, readFile("/etc/passwd"), readFile("/etc/group"))
	if err != nil {
		return imagevm.Ended{}, err
	}
	env := environment(o, who)
	if o.Dir == "" {
		o.Dir = "/"
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return imagevm.Ended{}, fmt.Errorf("make the working directory: %w", err)
	}
	program, err := find(o.Command[0], value(env, "PATH"), o.Dir)
	if err != nil {
		return imagevm.Ended{}, err
	}
	tty, has := terminal()
	_ = tty.Chown(int(who.uid), int(who.gid)) // so that the program can open /dev/stdout
	pid, err := syscall.ForkExec(program, o.Command, &syscall.ProcAttr{
		Dir: o.Dir, Env: env, Files: []uintptr{tty.Fd(), tty.Fd(), tty.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: has, Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups}},
	})
	if err != nil {
		return imagevm.Ended{}, fmt.Errorf("%s: %w", program, err)
	}
	servePowerButtons(func() { _ = unix.Kill(pid, signalOf(o.Stop)) })
	return bury(pid), nil
}

// terminal is the console as a terminal that a program can have for its own.
func terminal() (tty *os.File, ok bool) {
	names := strings.Fields(hardware.ReadLine("/sys/class/tty/console/active"))
	if len(names) > 0 {
		if f, err := os.OpenFile("/dev/"+names[len(names)-1], os.O_RDWR|unix.O_NOCTTY, 0); err == nil {
			return f, true
		}
	}
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return os.Stdout, false
	}
	return f, false
}

// bury waits for the program, and for every process that it leaves behind meanwhile.
func bury(pid int) imagevm.Ended {
	for {
		var s syscall.WaitStatus
		got, err := syscall.Wait4(-1, &s, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return imagevm.Ended{Status: 127, Error: "wait for the program: " + err.Error()}
		case got == pid && s.Signaled():
			return imagevm.Ended{Status: 128 + int(s.Signal()), Signal: unix.SignalName(s.Signal())}
		case got == pid && s.Exited():
			return imagevm.Ended{Status: s.ExitStatus()}
		}
	}
}

// endOthers asks what is left to end, and ends it soon after.
func endOthers() {
	if unix.Kill(-1, unix.SIGTERM) != nil {
		return
	}
	look, end := time.NewTicker(20*time.Millisecond), time.After(2*time.Second)
	defer look.Stop()
	for {
		if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); errors.Is(err, syscall.ECHILD) {
			return
		}
		select {
		case <-look.C:
		case <-end:
			_ = unix.Kill(-1, unix.SIGKILL)
			return
		}
	}
}

// servePowerButtons calls back when the host asks the machine to end.
func servePowerButtons(asked func()) {
	paths, _ := filepath.Glob("/dev/input/event*")
	for _, path := range paths {
		go func() {
			for hardware.AwaitPowerKey(path) == nil {
				asked()
			}
		}()
	}
}

// signalOf reads a signal as images name it: SIGQUIT, QUIT or 3.
func signalOf(name string) unix.Signal {
	var n int
	if _, err := fmt.Sscanf(name, "%d", &n); err == nil && n > 0 && n < 65 {
		return unix.Signal(n)
	}
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); s != 0 {
		return s
	}
	return unix.SIGTERM
}

// environment is the image's, with what every program expects.
func environment(o imagevm.Orders, who account) []string {
	env := slices.Clone(o.Env)
	for _, e := range []struct{ name, value string }{
		{"PATH", defaultPath}, {"HOME", who.home}, {"HOSTNAME", o.Host}, {"TERM", "xterm"},
	} {
		if !slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, e.name+"=") }) {
			env = append(env, e.name+"="+e.value)
		}
	}
	return env
}

func value(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// find looks for a program as a shell does.
func find(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for place := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(place) {
			place = filepath.Join(dir, place)
		}
		file := filepath.Join(place, name)
		if s, err := os.Stat(file); err == nil && s.Mode().IsRegular() && s.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s is in none of the directories of PATH (%s)", name, path)
}
