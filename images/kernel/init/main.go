//go:build linux

// Command init is process 1 of a machine that runs a container image: it puts the root together from the layers on the machine's disk,
// sets up the network, runs the image's program on the console, and ends the machine when the program has ended.
//
// What it runs comes from the launcher, through QEMU's firmware interface; how that ended goes back through a port. It knows nothing of
// Kubernetes or of images.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
	"github.com/berth-vm/berth/internal/imagevm"
)

// syslogConsoleLevel is SYSLOG_ACTION_CONSOLE_LEVEL of syslog(2).
const syslogConsoleLevel = 8

func main() {
	ended, err := run()
	if err != nil {
		ended = imagevm.Ended{Status: 127, Error: err.Error()}
		fmt.Fprintln(os.Stderr, "berth:", err)
	}
	if err := report(ended); err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
	}
	endOthers()
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // process 1 must never return: the kernel would panic
}

// port is opened before the root changes.
var port *os.File

func run() (imagevm.Ended, error) {
	if err := hardware.MountKernelFilesystems(); err != nil {
		return imagevm.Ended{}, err
	}
	if c, err := os.OpenFile("/dev/console", os.O_RDWR, 0); err == nil {
		os.Stdout, os.Stderr = c, c
	}
	_, _, _ = unix.Syscall(unix.SYS_SYSLOG, syslogConsoleLevel, 0, 1) // the console is the program's, but for a kernel that dies
	for _, err := range hardware.LoadModules() {
		fmt.Fprintln(os.Stderr, "berth:", err)
	}
	openPort()
	orders, err := readOrders(path.Join("/sys/firmware/qemu_fw_cfg/by_name", imagevm.OrdersName, "raw"))
	if err != nil {
		return imagevm.Ended{}, err
	}
	if err := makeRoot(orders); err != nil {
		return imagevm.Ended{}, err
	}
	allowPorts()
	dns := setUpNetwork()
	if err := enterRoot(); err != nil {
		return imagevm.Ended{}, err
	}
	nameHost(orders.Host, dns)
	return runProgram(orders)
}

func readOrders(file string) (imagevm.Orders, error) {
	var o imagevm.Orders
	text, err := os.ReadFile(file)
	if err != nil {
		return o, fmt.Errorf("read what to run: %w", err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read what to run: %w", err)
	}
	return o, nil
}

// patience is how long to wait for a device that the machine was built with: it exists at once, or its driver is slow.
const patience = time.Minute

func until(there func() bool) bool {
	look, end := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer look.Stop()
	for !there() {
		select {
		case <-look.C:
		case <-end:
			return false
		}
	}
	return true
}

func openPort() {
	until(func() bool {
		name := hardware.Port(imagevm.PortName)
		if name == "" {
			return false
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		port = f
		return err == nil
	})
}

func report(e imagevm.Ended) error {
	if port == nil {
		return fmt.Errorf("there is no port to say it on: %s", e)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("say how the program ended: %w", err)
	}
	if _, err := port.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("say how the program ended: %w", err)
	}
	return nil
}
