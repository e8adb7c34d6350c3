package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
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

// mode is one way in which a processor runs a guest. A firmware begins in real mode, a kernel runs in long mode with paging: where KVM
// is itself in a machine, the one may work and the other not.
type mode struct {
	name    string
	program []byte
	set     func(sregs []byte)
}

var modes = []mode{{"real mode", realProgram, setReal}, {"long mode", longProgram, setLong}}

// realProgram writes a byte to the first serial port and halts.
var realProgram = []byte{
	0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xb0, 'B', // mov al, 'B'
	0xee, // out dx, al
	0xf4, // hlt
}

// longProgram writes to memory many times before it does the same.
var longProgram = []byte{
	0xb9, 0x00, 0x00, 0x04, 0x00, // mov ecx, 0x40000
	0x89, 0x0c, 0x25, 0x00, 0x80, 0x00, 0x00, // again: mov [0x8000], ecx
	0xff, 0xc9, // dec ecx
	0x75, 0xf5, // jnz again
	0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xb0, 'B', // mov al, 'B'
	0xee, // out dx, al
	0xf4, // hlt
}

// The guest's memory, from 0: the program, and the tables by which long mode finds it.
const (
	memorySize = 64 << 10
	entry      = 0x1000
	tables     = 0x2000 // three pages: each has one entry, the last a page of 2 MiB at 0
)

// tryKVM runs a guest of a few instructions in every mode. It may hang where KVM is broken, so it is given a process of its own.
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
	for _, m := range modes {
		before := used()
		if err := m.try(int(f.Fd())); err != nil {
			return fmt.Errorf("a guest in %s: %w", m.name, err)
		}
		if err := fast(used() - before); err != nil {
			return fmt.Errorf("a guest in %s: %w", m.name, err)
		}
	}
	return nil
}

// most is how much processor time a guest may take here. A processor that runs it needs a millisecond; where KVM has to emulate each
// instruction, as in some machines that are themselves virtual, it needs seconds, and no kernel ever boots.
const most = 100 * time.Millisecond

func fast(took time.Duration) error {
	if took > most {
		return fmt.Errorf("it took %s of processor time instead of a millisecond: KVM emulates it, and no system would boot", took.Round(time.Millisecond))
	}
	return nil
}

// used returns the processor time of this process.
func used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it cannot fail for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (m mode) try(kvm int) error {
	vm, err := ask(kvm, kvmCreateVM, nil, "make a machine")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(vm) }()
	memory, err := m.load(vm)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	size, err := ask(kvm, kvmGetVCPUMmapSize, nil, "say how large a processor is")
	if err != nil {
		return err
	}
	return m.run(vm, size)
}

// load gives the machine memory with the program in it.
func (m mode) load(vm int) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("make the guest's memory: %w", err)
	}
	copy(memory[entry:], m.program)
	const present, large, page = 0x3, 0x80, 0x1000
	binary.LittleEndian.PutUint64(memory[tables:], tables+page|present)
	binary.LittleEndian.PutUint64(memory[tables+page:], tables+2*page|present)
	binary.LittleEndian.PutUint64(memory[tables+2*page:], present|large)
	//nolint:gosec // KVM takes memory by its address
	region := struct {
		slot, flags               uint32
		guest, size, userspaceAdr uint64
	}{size: uint64(len(memory)), userspaceAdr: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	_, err = ask(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region), "take the guest's memory") //nolint:gosec // and its requests, too
	return memory, err
}

// run runs the program on one processor and sees that it did what it says.
func (m mode) run(vm, size int) error {
	vcpu, err := ask(vm, kvmCreateVCPU, nil, "make a processor")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(vcpu) }()
	state, err := unix.Mmap(vcpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("look at the processor: %w", err)
	}
	defer func() { _ = unix.Munmap(state) }()
	if err := m.point(vcpu); err != nil {
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
			return errors.New("it halted before it had written")
		default:
			return fmt.Errorf("it ended for KVM's reason %d", reason)
		}
	}
	return errors.New("it does not halt")
}

// point makes the processor begin with the program.
func (m mode) point(vcpu int) error {
	var sregs [0x138]byte
	if _, err := ask(vcpu, kvmGetSregs, unsafe.Pointer(&sregs), "read the registers"); err != nil { //nolint:gosec // as above
		return err
	}
	m.set(sregs[:])
	if _, err := ask(vcpu, kvmSetSregs, unsafe.Pointer(&sregs), "set the registers"); err != nil { //nolint:gosec // as above
		return err
	}
	var regs [0x90]byte
	binary.LittleEndian.PutUint64(regs[128:], entry)                            // rip, after 16 general registers
	binary.LittleEndian.PutUint64(regs[136:], 2)                                // rflags: the bit that is always set
	_, err := ask(vcpu, kvmSetRegs, unsafe.Pointer(&regs), "set the registers") //nolint:gosec // as above
	return err
}

// Where struct kvm_sregs has what is set here: eight segments of 24 bytes, the first of them cs, two tables, the control registers.
const (
	selectorAt   = 12 // of a segment
	typeAt       = 14
	defaultBigAt = 17
	longAt       = 19
	cr0At        = 224
	cr3At        = 240
	cr4At        = 248
	eferAt       = 264
)

// setReal has code begin at address 0.
func setReal(sregs []byte) {
	binary.LittleEndian.PutUint64(sregs, 0)
	binary.LittleEndian.PutUint16(sregs[selectorAt:], 0)
}

// setLong turns protection, paging and 64 bits on.
func setLong(sregs []byte) {
	const protection, paging, extended, longEnabled, longActive = 1, 1 << 31, 1 << 5, 1 << 8, 1 << 10
	or := func(at int, bits uint64) {
		binary.LittleEndian.PutUint64(sregs[at:], binary.LittleEndian.Uint64(sregs[at:])|bits)
	}
	or(cr0At, protection|paging)
	or(cr4At, extended)
	or(eferAt, longEnabled|longActive)
	binary.LittleEndian.PutUint64(sregs[cr3At:], tables)
	setReal(sregs)
	sregs[typeAt], sregs[defaultBigAt], sregs[longAt] = 0xb, 0, 1 // code that can be run and read
}

func ask(fd int, request uintptr, argument unsafe.Pointer, what string) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if errno != 0 {
		return 0, fmt.Errorf("KVM does not %s: %w", what, errno)
	}
	return int(n), nil
}
