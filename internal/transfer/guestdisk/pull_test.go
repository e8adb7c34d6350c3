package guestdisk

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
)

// puller is a client of a job that serves disks.
type puller struct {
	t    *testing.T
	http *http.Client
	base string
	job  *Job
	stop func()
	done chan task.Report
}

// pull serves the files, by their names.
func pull(t *testing.T, files map[string]string) *puller {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authority.Issue(pki.Leaf{Name: "test", DNSNames: []string{"disks"}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": keys.Certificate, "tls.key": keys.Key, "token": []byte("secret")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	b := task.BackUp{Version: task.Version, Files: files, Serve: &task.ServeBackup{Listen: address, TLSDir: dir, TokenDir: dir}}
	for name := range files {
		b.Disks = append(b.Disks, name)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	job, done := NewJob(b), make(chan task.Report, 1)
	go func() { done <- job.Run(ctx) }()
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	p := &puller{t: t, base: "https://" + address + "/exports/", job: job, stop: stop, done: done,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "disks"}}}}
	for range 200 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return p
		}
		select {
		case r := <-done:
			t.Fatalf("it ended: %+v", r)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("it does not serve")
	return nil
}

// get asks with the token.
func (p *puller) get(path string) (int, []byte, error) {
	return p.getWith("secret", path)
}

func (p *puller) getWith(token, path string) (int, []byte, error) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.base+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set(tlsserver.Token, token)
	resp, err := p.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// disk writes a sparse file of 64 MiB with some data, and returns its path and bytes.
func sparseDisk(t *testing.T) (path string, want []byte) {
	t.Helper()
	want = make([]byte, 64<<20)
	path = filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(len(want))); err != nil {
		t.Fatal(err)
	}
	for i, at := range []int{0, 1 << 20, 17<<20 + 4096, 63 << 20} {
		piece := bytes.Repeat([]byte{byte(i + 1)}, 128<<10)
		copy(want[at:], piece)
		if _, err := f.WriteAt(piece, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	return path, want
}

// TestPull: a client that keeps to upstream's contract reads the map page by page and the data that it names, and has the disk. The job knows when
// everything was fetched, and not before.
func TestPull(t *testing.T) {
	path, want := sparseDisk(t)
	p := pull(t, map[string]string{"root": path})
	got := make([]byte, len(want))
	pages := 0
	for next := int64(0); ; pages++ {
		code, text, err := p.get(fmt.Sprintf("root/map?offset=%d&page_size=3", next))
		var page mapPage
		if err == nil {
			err = json.Unmarshal(text, &page)
		}
		if err != nil || code != http.StatusOK || len(page.Extents) == 0 || len(page.Extents) > 3 || page.Extents[0].Offset != next {
			t.Fatalf("map from %d: %d, %v, %s", next, code, err, text)
		}
		for _, e := range page.Extents {
			if e.Description == "hole,zero" {
				continue
			}
			if p.job.Progress().Stage == task.Finished {
				t.Fatal("it is said to be fetched, and is not")
			}
			code, data, err := p.get(fmt.Sprintf("root/data?offset=%d&length=%d", e.Offset, e.Length))
			if err != nil || code != http.StatusOK || int64(len(data)) != e.Length {
				t.Fatalf("data of %+v: %d, %d bytes, %v", e, code, len(data), err)
			}
			copy(got[e.Offset:], data)
		}
		if page.NextOffset == nil {
			break
		}
		next = *page.NextOffset
	}
	if !bytes.Equal(got, want) || pages == 0 {
		t.Errorf("the disk differs; %d pages and one", pages)
	}
	if s := p.job.Progress().Stage; s != task.Finished {
		t.Errorf("everything was fetched, and it is %s", s)
	}
	p.stop()
	if r := <-p.done; r.Reason != task.Interrupted {
		t.Errorf("told to stop, it says %+v", r)
	}
}

// TestPullRefuses: requests without the token, of other disks and of what is not on the disk get nothing.
func TestPullRefuses(t *testing.T) {
	path, want := sparseDisk(t)
	p := pull(t, map[string]string{"root": path})
	for _, token := range []string{"", "other", "secret2"} {
		for _, path := range []string{"root/map", "root/data", "other/data"} {
			if code, body, err := p.getWith(token, path); code != http.StatusUnauthorized || err != nil || bytes.Contains(body, want[:16]) {
				t.Errorf("token %q, %s: %d, %v", token, path, code, err)
			}
		}
	}
	for path, code := range map[string]int{
		"other/data": 404, "root": 404, "root/": 404, "root/data/..": 404, "..%2froot/data": 404, "%2e%2e/%2e%2e/etc/passwd": 404,
		"root/data?offset=-1": 400, "root/data?offset=x": 400, "root/data?offset=67108865": 400, "root/data?length=67108865": 400, "root/data?length=-1": 400,
		"root/data?offset=67108864&length=1": 400, "root/data?offset=9223372036854775807&length=9223372036854775807": 400, "root/map?page_size=0": 400,
		"root/map?page_size=-5": 400, "root/map?length=99999999999": 400, "root/data?offset=67108864": 200, "root/data?length=0": 200, "root/map?page_size=2147483648": 200,
	} {
		got, body, err := p.get(path)
		if got != code || err != nil {
			t.Errorf("%s: %d instead of %d, %v: %s", path, got, code, err, body[:min(len(body), 200)])
		}
	}
	if p.job.Progress().Stage == task.Finished {
		t.Error("it is said to be fetched, and is not")
	}
}

// TestPullOfADiskThatChanges: an answer is cut off when a file was written to since it was opened, and the job fails.
func TestPullOfADiskThatChanges(t *testing.T) {
	path, _ := sparseDisk(t)
	p := pull(t, map[string]string{"root": path})
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("later"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if code, _, err := p.get("root/data"); code == http.StatusOK && err == nil {
		t.Error("it was read all the same")
	}
	if r := <-p.done; r.Reason != task.SourceChanged {
		t.Errorf("it says %+v", r)
	}
}

// TestRest: what is left to be fetched, for pieces of all sizes.
func TestRest(t *testing.T) {
	const size = 10<<20 + 100
	r := rest{size: size, bits: make([]uint64, (size+64*grain-1)/(64*grain))}
	r.change(0, (size+grain-1)/grain, true)
	for at := int64(0); at < size; at += 12 << 10 {
		r.fetched(at, min(at+12<<10, size))
	}
	if !r.none() {
		t.Errorf("%d pieces are left", r.left)
	}
	r.change(1, 3, true)
	r.fetched(1, 3*grain-1) // neither of them whole
	r.fetched(0, 2*grain)
	if r.left != 1 || r.none() {
		t.Errorf("%d pieces are left", r.left)
	}
}
