//go:build host

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// TestRealSSH: the real ssh and scp reach a real sshd through virtctl, as they would reach a guest's. The API server is simulated: its
// portforward is an sshd that begins with the connection.
func TestRealSSH(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	sh := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	sh("go", "build", "-trimpath", "-o", at("virtctl"), ".")
	for _, key := range []string{"host", "user"} {
		sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key))
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // which sshd demands
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sshd.conf", fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"+
		"PasswordAuthentication no\nSubsystem sftp internal-sftp\n", at("host"), at("user.pub")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/subresources.kubevirt.io/v1/namespaces/team/virtualmachines/web/portforward/22/tcp" {
			http.NotFound(w, r)
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{"plain.kubevirt.io"}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		serveSSH(t, conn, at("sshd.conf"))
	}))
	defer server.Close()
	write("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"team"}}],"current-context":"c","users":[{"name":"u","user":{}}]}`, server.URL))
	virtctl := func(args ...string) string {
		t.Helper()
		return sh(append(append([]string{at("virtctl")}, args...), "--kubeconfig", at("kubeconfig"), "-i", at("user"), "--known-hosts", at("known"),
			"-t", "-o StrictHostKeyChecking=accept-new", "-t", "-o BatchMode=yes", "-t", "-F none", "-l", "root")...)
	}
	if got := virtctl("ssh", "vm/web", "-c", "echo hello from $((40+2))"); !strings.HasSuffix(strings.TrimSpace(got), "hello from 42") {
		t.Errorf("ssh says %q", got)
	}
	if known, err := os.ReadFile(at("known")); err != nil || !strings.HasPrefix(string(known), "vm.web.team ") {
		t.Errorf("the guest's key is kept as %.40q, %v", known, err)
	}
	data := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	write("from", data)
	virtctl("scp", at("from"), "vm/web:"+at("there"))
	virtctl("scp", "vm/web/team:"+at("there"), at("back"))
	if got, err := os.ReadFile(at("back")); err != nil || string(got) != data {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// serveSSH has an sshd of its own talk on the websocket until either side ends.
func serveSSH(t *testing.T, conn *websocket.Conn, config string) {
	cmd := exec.Command("/usr/sbin/sshd", "-i", "-e", "-f", config)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	go func() {
		defer in.Close()
		for {
			_, r, err := conn.NextReader()
			if err != nil {
				return
			}
			if _, err := io.Copy(in, r); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := out.Read(buffer)
		if n > 0 && conn.WriteMessage(websocket.BinaryMessage, buffer[:n]) != nil || err != nil {
			break
		}
	}
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	_ = cmd.Wait()
}
