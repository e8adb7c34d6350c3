package iscsi

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const iqn = "iqn.2026-01.dev.berth:test"

// memory is a disk whose reads may be held up.
type memory struct {
	data []byte
	hold chan struct{} // a read waits for it; nil: none does
	err  error
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if m.hold != nil {
		<-m.hold
	}
	if m.err != nil {
		return 0, m.err
	}
	return bytes.NewReader(m.data).ReadAt(p, off)
}

func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}

// client is an initiator that says exactly what a test wants.
type client struct {
	t     *testing.T
	c     net.Conn
	cmdSN uint32
	tag   uint32
}

// dial connects to a target.
func dial(t *testing.T, target *Target) *client {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		err := target.Answer(there)
		_ = there.Close()
		done <- err
	}()
	t.Cleanup(func() { _ = here.Close(); <-done })
	if err := here.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, c: here, cmdSN: 7}
}

func (c *client) send(p *pdu) {
	c.t.Helper()
	c.tag++
	p.set(16, c.tag)
	p.set(24, c.cmdSN)
	if p.op() == opCommand || p.op() == opText || p.op() == opNopOut {
		c.cmdSN++
	}
	if _, err := c.c.Write(p.bytes()); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads an answer, which may be longer than what targets take.
func (c *client) receive() *pdu {
	c.t.Helper()
	p := &pdu{}
	if _, err := io.ReadFull(c.c, p.head[:]); err != nil {
		c.t.Fatal(err)
	}
	n := int(p.head[5])<<16 | int(p.head[6])<<8 | int(p.head[7])
	b := make([]byte, padded(n))
	if _, err := io.ReadFull(c.c, b); err != nil {
		c.t.Fatal(err)
	}
	p.data = b[:n]
	return p
}

// step sends a message of a login.
func (c *client) step(flags byte, pairs ...string) (*pdu, map[string]string) {
	c.t.Helper()
	p := &pdu{data: text(pairs...)}
	p.head[0], p.head[1] = opLogin|immediate, flags
	c.send(p)
	a := c.receive()
	kv, err := keys(a.data)
	if err != nil {
		c.t.Fatal(err)
	}
	return a, kv
}

const toOperational, toFull = final | stageSecurity<<2 | stageOperational, final | stageOperational<<2 | stageFull

// login logs in without a secret.
func (c *client) login(pairs ...string) map[string]string {
	c.t.Helper()
	a, kv := c.step(toFull, append([]string{"InitiatorName=iqn.x", "TargetName=" + iqn}, pairs...)...)
	if a.head[36] != 0 || a.head[1] != toFull {
		c.t.Fatalf("login: %x", a.head)
	}
	return kv
}

// scsi asks for something and returns its data and its status.
func (c *client) scsi(lun byte, room uint32, cdb ...byte) (data []byte, end *pdu) {
	c.t.Helper()
	c.ask(lun, room, cdb...)
	return c.answer()
}

func (c *client) ask(lun byte, room uint32, cdb ...byte) {
	c.t.Helper()
	p := &pdu{}
	p.head[0], p.head[1] = opCommand, final|0x40
	p.head[9] = lun
	p.set(20, room)
	copy(p.cdb(), cdb)
	c.send(p)
}

func (c *client) answer() (data []byte, end *pdu) {
	c.t.Helper()
	for {
		p := c.receive()
		switch p.op() {
		case opDataIn:
			if off := be.Uint32(p.head[40:]); int(off) != len(data) {
				c.t.Fatalf("data for %d after %d bytes", off, len(data))
			}
			data = append(data, p.data...)
		case opResponse:
			return data, p
		default:
			c.t.Fatalf("opcode %#x", p.op())
		}
	}
}

func read10(at uint32, n uint16) []byte {
	b := make([]byte, 10)
	b[0] = cmdRead10
	be.PutUint32(b[2:], at)
	be.PutUint16(b[7:], n)
	return b
}

func target(t *testing.T, disks ...Disk) *Target {
	t.Helper()
	out := &Target{Name: iqn}
	for i, d := range disks {
		if err := out.Put(i, &LUN{Disk: d, ID: fmt.Sprintf("disk-%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestReads(t *testing.T) {
	disk := noise(3<<20 + 100) // its last block is not full
	c := dial(t, target(t, &memory{data: []byte{1}}, &memory{data: disk}))
	said := c.login("MaxRecvDataSegmentLength=20000", "MaxBurstLength=65536", "ImmediateData=Yes", "X-what=1")
	for k, want := range map[string]string{"ImmediateData": "No", "MaxBurstLength": "65536", "X-what": "NotUnderstood", "MaxRecvDataSegmentLength": "8192", "TargetPortalGroupTag": "1"} {
		if said[k] != want {
			t.Errorf("%s=%s", k, said[k])
		}
	}
	capacity, _ := c.scsi(1, 8, cmdReadCapacity10)
	if got := be.Uint32(capacity); int(got) != len(disk)/512 {
		t.Errorf("the last block is %d", got)
	}
	whole := append(bytes.Clone(disk), make([]byte, 512-100)...)
	for _, span := range [][2]int{{0, 1}, {5, 1000}, {len(disk) / 512, 1}, {1, 6000}} {
		want := whole[span[0]*512:][:span[1]*512]
		got, end := c.scsi(1, uint32(len(want)), read10(uint32(span[0]), uint16(span[1]))...)
		if !bytes.Equal(got, want) || end.head[3] != statusGood || end.head[1] != final {
			t.Errorf("%v: %d bytes, %x", span, len(got), end.head)
		}
	}
	if got, end := c.scsi(1, 1000, read10(0, 4)...); len(got) != 1000 || end.head[1] != final|4 || be.Uint32(end.head[44:]) != 1048 {
		t.Errorf("more than there is room for: %d bytes, %x", len(got), end.head)
	}
}

func TestRefusals(t *testing.T) {
	c := dial(t, target(t, &memory{data: noise(1 << 20)}, &memory{data: noise(512), err: ErrBusy}, &memory{data: noise(512), err: io.ErrUnexpectedEOF},
		&memory{data: noise(512), err: fmt.Errorf("a server: %w", io.EOF)}))
	c.login()
	for name, q := range map[string]struct {
		lun    byte
		cdb    []byte
		status byte
		sense  sense
	}{
		"behind the end":   {0, read10(2048, 1), statusCheck, senseOutOfRange},
		"over the end":     {0, read10(2047, 2), statusCheck, senseOutOfRange},
		"far":              {0, append([]byte{cmdRead16, 0}, bytes.Repeat([]byte{255}, 14)...), statusCheck, senseOutOfRange},
		"write":            {0, []byte{0x2a, 0, 0, 0, 0, 0, 0, 0, 1}, statusCheck, senseWriteShield},
		"unmap":            {0, []byte{0x42}, statusCheck, senseWriteShield},
		"unknown":          {0, []byte{0xff}, statusCheck, senseUnknown},
		"no such LUN":      {9, read10(0, 1), statusCheck, senseNoLUN},
		"busy":             {1, read10(0, 1), statusBusy, sense{}},
		"a medium":         {2, read10(0, 1), statusCheck, senseMedium},
		"an end before it": {3, read10(0, 1), statusCheck, senseMedium},
		"no such page":     {0, []byte{cmdInquiry, 1, 0x77, 0, 255}, statusCheck, senseField},
		"page, not asked":  {0, []byte{cmdInquiry, 0, 0x83, 0, 255}, statusCheck, senseField},
		"a mode of others": {0, []byte{cmdModeSense6, 0, 0x19, 0, 255}, statusCheck, senseField},
	} {
		data, end := c.scsi(q.lun, 512, q.cdb...)
		if len(data) != 0 || end.head[3] != q.status {
			t.Errorf("%s: %d bytes, status %#x", name, len(data), end.head[3])
		}
		if q.status == statusCheck && (len(end.data) != 20 || sense{end.data[4], end.data[14], end.data[15]} != q.sense) {
			t.Errorf("%s: %x", name, end.data)
		}
	}
}

func TestLUNs(t *testing.T) {
	d := &memory{data: noise(512)}
	tg := target(t, d, d, d)
	tg.Remove(1)
	c := dial(t, tg)
	c.login()
	list, _ := c.scsi(0, 256, cmdReportLUNs, 0, 0, 0, 0, 0, 0, 0, 1)
	if want := []byte{0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0}; !bytes.Equal(list, want) {
		t.Errorf("%x", list)
	}
	names := map[string]bool{}
	for _, lun := range []byte{0, 2} {
		id, _ := c.scsi(lun, 255, cmdInquiry, 1, pageIdentity, 0, 255)
		names[string(id)] = true
	}
	if len(names) != 2 {
		t.Error("two disks say that they are the same one")
	}
	gone, _ := c.scsi(1, 36, cmdInquiry, 0, 0, 0, 36)
	if gone[0] != 0x7f {
		t.Errorf("a LUN that is not there is %#x", gone[0])
	}
	for _, bad := range []error{tg.Put(mostLUNs, &LUN{Disk: d}), tg.Put(0, &LUN{Disk: d, ID: strings.Repeat("x", 65)}), tg.Put(0, &LUN{Disk: &memory{}})} {
		if bad == nil {
			t.Error("it takes a LUN that cannot be")
		}
	}
}

// proof returns what an initiator makes of a challenge.
func proof(kv map[string]string, secret string) string {
	id, _ := strconv.Atoi(kv["CHAP_I"])
	challenge, _ := hex.DecodeString(strings.TrimPrefix(kv["CHAP_C"], "0x"))
	p := md5.Sum(slices.Concat([]byte{byte(id)}, []byte(secret), challenge))
	return "0x" + hex.EncodeToString(p[:])
}

func TestCHAP(t *testing.T) {
	tg := target(t, &memory{data: noise(512)})
	const secret = "secret1234567"
	tg.Login = func() (string, string, error) { return "vm", secret, nil }
	begin := func(t *testing.T) (*client, map[string]string) {
		c := dial(t, tg)
		_, kv := c.step(toOperational, "InitiatorName=iqn.x", "TargetName="+iqn, "AuthMethod=CHAP,None")
		if kv["AuthMethod"] != "CHAP" {
			t.Fatalf("%v", kv)
		}
		_, kv = c.step(stageSecurity<<2, "CHAP_A=5")
		return c, kv
	}
	t.Run("right", func(t *testing.T) {
		c, kv := begin(t)
		if a, _ := c.step(toOperational, "CHAP_N=vm", "CHAP_R="+proof(kv, secret)); a.head[36] != 0 || a.head[1] != toOperational {
			t.Fatalf("%x", a.head)
		}
		if a, _ := c.step(toFull); a.head[36] != 0 || a.head[1] != toFull {
			t.Fatalf("%x", a.head)
		}
		if got, _ := c.scsi(0, 512, read10(0, 1)...); len(got) != 512 {
			t.Error("it reads nothing")
		}
	})
	for name, f := range map[string]func(*testing.T) *pdu{
		"wrong secret": func(t *testing.T) *pdu {
			c, kv := begin(t)
			a, _ := c.step(toOperational, "CHAP_N=vm", "CHAP_R="+proof(kv, "secret123456"))
			return a
		},
		"wrong user": func(t *testing.T) *pdu {
			c, kv := begin(t)
			a, _ := c.step(toOperational, "CHAP_N=vn", "CHAP_R="+proof(kv, secret))
			return a
		},
		"mutual": func(t *testing.T) *pdu {
			c, kv := begin(t)
			a, _ := c.step(toOperational, "CHAP_N=vm", "CHAP_R="+proof(kv, secret), "CHAP_I=1", "CHAP_C="+kv["CHAP_C"])
			return a
		},
		"no challenge": func(t *testing.T) *pdu {
			c := dial(t, tg)
			a, _ := c.step(toOperational, "InitiatorName=iqn.x", "TargetName="+iqn, "CHAP_N=vm", "CHAP_R="+proof(nil, secret))
			return a
		},
		"none offered": func(t *testing.T) *pdu {
			c := dial(t, tg)
			a, _ := c.step(toOperational, "InitiatorName=iqn.x", "TargetName="+iqn, "AuthMethod=None")
			return a
		},
		"straight on": func(t *testing.T) *pdu {
			c := dial(t, tg)
			a, _ := c.step(toFull, "InitiatorName=iqn.x", "TargetName="+iqn)
			return a
		},
		"discovery": func(t *testing.T) *pdu {
			c := dial(t, tg)
			a, _ := c.step(toFull, "InitiatorName=iqn.x", "SessionType=Discovery")
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			if a := f(t); a.head[36] != 2 || a.head[37] != 1 || a.head[1]&final != 0 {
				t.Errorf("%x", a.head)
			}
		})
	}
}

// TestEmptySecret: a target that should have a secret and has an empty one rejects every login.
func TestEmptySecret(t *testing.T) {
	tg := target(t, &memory{data: noise(512)})
	tg.Login = func() (string, string, error) { return "vm", "", nil }
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_, _ = here.Write((&pdu{head: [headSize]byte{opLogin | immediate, toFull}, data: text("InitiatorName=iqn.x", "TargetName="+iqn)}).bytes())
	}()
	if err := tg.Answer(there); err == nil || !strings.Contains(err.Error(), "secret is empty") {
		t.Errorf("%v", err)
	}
}

func TestDiscovery(t *testing.T) {
	tg := target(t, &memory{data: noise(512)})
	tg.Address = "10.0.0.1:3260"
	c := dial(t, tg)
	if a, _ := c.step(toFull, "InitiatorName=iqn.x", "SessionType=Discovery"); a.head[36] != 0 {
		t.Fatalf("%x", a.head)
	}
	p := &pdu{data: text("SendTargets=All")}
	p.head[0], p.head[1] = opText, final
	c.send(p)
	if got := string(c.receive().data); got != "TargetName="+iqn+"\x00TargetAddress=10.0.0.1:3260,1\x00" {
		t.Errorf("%q", got)
	}
}

// TestBeside: a read that waits for its bytes does not delay pings and other reads, and an aborted read is never answered.
func TestBeside(t *testing.T) {
	slow := &memory{data: noise(512), hold: make(chan struct{})}
	c := dial(t, target(t, slow, &memory{data: noise(512)}))
	c.login()
	c.ask(0, 512, read10(0, 1)...)
	first := c.tag
	c.ask(0, 512, read10(0, 1)...)
	if got, _ := c.scsi(1, 512, read10(0, 1)...); len(got) != 512 {
		t.Error("another read waits")
	}
	ping := &pdu{data: []byte("hello")}
	ping.head[0], ping.head[1] = opNopOut, final
	c.send(ping)
	if a := c.receive(); a.op() != opNopIn || string(a.data) != "hello" || a.tag() != c.tag {
		t.Errorf("ping: %x", a.head)
	}
	abort := func(tag uint32) byte {
		p := &pdu{}
		p.head[0], p.head[1] = opTask|immediate, final|abortTask
		p.set(20, tag)
		c.send(p)
		return c.receive().head[2]
	}
	if got := abort(first); got != taskDone {
		t.Errorf("abort: %d", got)
	}
	if got := abort(first); got != taskUnknown {
		t.Errorf("abort again: %d", got)
	}
	close(slow.hold)
	if _, end := c.answer(); end.tag() != first+1 {
		t.Errorf("%d was answered", end.tag()-first)
	}
}

// TestOwnBuffers: an initiator that asks for all it may of a disk that does not answer leaves the others their buffers.
func TestOwnBuffers(t *testing.T) {
	stuck := &memory{data: noise(512), hold: make(chan struct{})}
	both := target(t, stuck, &memory{data: noise(512)})
	greedy, other := dial(t, both), dial(t, both)
	defer close(stuck.hold)
	greedy.login()
	other.login()
	for range commands {
		greedy.ask(0, 512, read10(0, 1)...)
	}
	for deadline := time.Now().Add(time.Minute); len(both.buffers) < ownBuffers && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if got := len(both.buffers); got != ownBuffers {
		t.Errorf("it holds %d buffers of %d", got, buffers)
	}
	if got, _ := other.scsi(1, 512, read10(0, 1)...); len(got) != 512 {
		t.Error("another one is not answered")
	}
}

// TestAllBuffers: initiators that hold all buffers that are shared do not keep another from reading.
func TestAllBuffers(t *testing.T) {
	stuck := &memory{data: noise(512), hold: make(chan struct{})}
	both := target(t, stuck, &memory{data: noise(512)})
	defer close(stuck.hold)
	for range buffers/ownBuffers + 1 {
		greedy := dial(t, both)
		greedy.login()
		for range ownBuffers {
			greedy.ask(0, 512, read10(0, 1)...)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(both.buffers) < buffers && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if got := len(both.buffers); got != buffers {
		t.Fatalf("they hold %d buffers of %d", got, buffers)
	}
	other := dial(t, both)
	other.login()
	for range 3 {
		if got, _ := other.scsi(1, 512, read10(0, 1)...); len(got) != 512 {
			t.Error("another one is not answered")
		}
	}
}

// TestOutOfOrder: what has a number that is not due is as if it had not been sent.
func TestOutOfOrder(t *testing.T) {
	c := dial(t, target(t, &memory{data: noise(512)}))
	c.login()
	c.cmdSN += 5
	c.ask(0, 512, read10(0, 1)...)
	c.cmdSN -= 6
	if got, end := c.scsi(0, 512, read10(0, 1)...); len(got) != 512 || end.tag() != c.tag {
		t.Error("not the one that was due")
	}
}

// TestConnections: clients that connect and do not log in keep no other out, a client that logs in keeps its slot, and one host
// does not get all of them.
func TestConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tg := target(t, &memory{data: noise(512)})
	done := make(chan error)
	go func() { done <- tg.Serve(l) }()
	connect := func() *client {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return &client{t: t, c: conn, cmdSN: 7}
	}
	first := connect()
	first.login()
	for range connections + 10 {
		connect()
	}
	last := connect()
	last.login()
	for _, c := range []*client{first, last} {
		if got, _ := c.scsi(0, 512, read10(0, 1)...); len(got) != 512 {
			t.Error("one that is logged in is not answered")
		}
	}
	for range connections/2 - 2 {
		connect().login()
	}
	refused := connect()
	if _, err := refused.c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("one host has more than half of the places: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzSession says anything to a target, before and after a login.
func FuzzSession(f *testing.F) {
	hello := &pdu{data: text("InitiatorName=iqn.x", "TargetName="+iqn, "MaxBurstLength=512")}
	hello.head[0], hello.head[1] = opLogin|immediate, toFull
	ask := func(op, flags byte, cdb ...byte) []byte {
		p := &pdu{}
		p.head[0], p.head[1] = op, flags
		p.set(20, 4096)
		copy(p.cdb(), cdb)
		return p.bytes()
	}
	for _, rest := range [][]byte{
		nil, ask(opCommand, final, read10(0, 8)...), ask(opCommand, final, cmdInquiry, 1, pageIdentity, 0, 255), ask(opTask, abortTask), ask(opText, final), ask(opNopOut, final),
		ask(opLogout, final), ask(opCommand, final, cmdReportLUNs, 0, 0, 0, 0, 0, 0, 0, 16), ask(opCommand, final, cmdModeSense10, 0, 0x3f, 0, 0, 0, 0, 1, 0), ask(0x1c, final),
	} {
		f.Add(append(hello.bytes(), rest...), "secret")
		f.Add(append(hello.bytes(), rest...), "")
	}
	f.Fuzz(func(_ *testing.T, b []byte, secret string) {
		tg := &Target{Name: iqn}
		if secret != "" {
			tg.Login = func() (string, string, error) { return "vm", secret, nil }
		}
		if err := tg.Put(0, &LUN{Disk: &memory{data: make([]byte, 1<<20)}, ID: "x"}); err != nil {
			return
		}
		here, there := net.Pipe()
		go func() {
			_, _ = here.Write(b)
			_ = here.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		_ = tg.Answer(there) // any error, no panic, and an end
		_ = there.Close()
	})
}

// FuzzKeys reads the text of a negotiation.
func FuzzKeys(f *testing.F) {
	f.Add(text("A=1", "B=2"))
	f.Add([]byte("=\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		kv, err := keys(b)
		if err != nil {
			return
		}
		if len(kv) > mostKeys {
			t.Errorf("%d keys", len(kv))
		}
		_, _ = binaryValue(kv["CHAP_R"]) // any answer, no panic
	})
}
