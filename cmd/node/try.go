package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const kvmDevice = "/dev/kvm"

// Requests to KVM and what it answers, from linux/kvm.h on amd64.
const (
	kvmGetAPIVersion       = 0xAE00
	kvmCreateVM            = 0xAE01
	kvmGetVCPUMmapSize     = 0xAE04
	kvmCreateVCPU          = 0xAE41
	kvmSetUserMemoryRegion = 0x4020AE46
	kvmRun                 = 0xAE80
	kvmSetRegs             = 0x4090AE82
	kvmGetSregs            = 0x8138AE83
	kvmSetSregs            = 0x4138AE84

	kvmAPIVersion = 12
	kvmExitIO     = 2
	kvmExitHlt    = 5
)

// program writes a byte to the first serial port and halts.
var program = []byte{
	0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xb0, 'B', // mov al, 'B'
	0xee, // out dx, al
	0xf4, // hlt
}

// entry is where the program is in the guest's memory.
const entry = 0x1000

// tryKVM runs a guest of a few instructions. It may hang where KVM is broken, so it is given a process of its own.
func tryKVM(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	version, err := ask(int(f.Fd()), kvmGetAPIVersion, nil, "say its version")
	if err != nil {
		return err
	}
	if version != kvmAPIVersion {
		return fmt.Errorf("%s speaks version %d, not %d", device, version, kvmAPIVersion)
	}
	vm, err := ask(int(f.Fd()), kvmCreateVM, nil, "make a machine")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(vm) }()
	if err := loadProgram(vm); err != nil {
		return err
	}
	size, err := ask(int(f.Fd()), kvmGetVCPUMmapSize, nil, "say how large a processor is")
	if err != nil {
		return err
	}
	return runProgram(vm, size)
}

// loadProgram gives the machine memory with the program in it.
func loadProgram(vm int) error {
	memory, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("make the guest's memory: %w", err)
	}
	copy(memory, program)
	//nolint:gosec // KVM takes memory by its address
	region := struct {
		slot, flags               uint32
		guest, size, userspaceAdr uint64
	}{guest: entry, size: uint64(len(memory)), userspaceAdr: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	_, err = ask(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region), "take the guest's memory") //nolint:gosec // and its requests, too
	return err
}

// runProgram runs it on one processor and sees that it did what it says.
func runProgram(vm, size int) error {
	vcpu, err := ask(vm, kvmCreateVCPU, nil, "make a processor")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(vcpu) }()
	state, err := unix.Mmap(vcpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("look at the processor: %w", err)
	}
	if err := point(vcpu); err != nil {
		return err
	}
	wrote := false
	for range 4 {
		if _, err := ask(vcpu, kvmRun, nil, "run the guest"); err != nil {
			return err
		}
		switch reason := binary.LittleEndian.Uint32(state[8:]); reason {
		case kvmExitIO:
			wrote = true
		case kvmExitHlt:
			if wrote {
				return nil
			}
			return fmt.Errorf("the guest halted before it had written")
		default:
			return fmt.Errorf("the guest ended for KVM's reason %d", reason)
		}
	}
	return fmt.Errorf("the guest does not halt")
}

// point makes the processor begin with the program, in real mode with flat segments.
func point(vcpu int) error {
	var sregs [0x138]byte
	if _, err := ask(vcpu, kvmGetSregs, unsafe.Pointer(&sregs), "read the registers"); err != nil { //nolint:gosec // as above
		return err
	}
	binary.LittleEndian.PutUint64(sregs[0:], 0)                                                    // base of cs, the first of the segments
	binary.LittleEndian.PutUint16(sregs[12:], 0)                                                   // its selector
	if _, err := ask(vcpu, kvmSetSregs, unsafe.Pointer(&sregs), "set the registers"); err != nil { //nolint:gosec // as above
		return err
	}
	var regs [0x90]byte
	binary.LittleEndian.PutUint64(regs[128:], entry)                            // rip, after 16 general registers
	binary.LittleEndian.PutUint64(regs[136:], 2)                                // rflags: the bit that is always set
	_, err := ask(vcpu, kvmSetRegs, unsafe.Pointer(&regs), "set the registers") //nolint:gosec // as above
	return err
}

func ask(fd int, request uintptr, argument unsafe.Pointer, what string) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if errno != 0 {
		return 0, fmt.Errorf("KVM does not %s: %w", what, errno)
	}
	return int(n), nil
}
