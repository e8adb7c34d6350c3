//go:build e2e

package virtctl

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// asksExport asks the server of an export through the API server, which knows nothing of tokens.
func asksExport(b *fixture.Volumes, export, path string, headers map[string]string) *http.Response {
	b.T.Helper()
	client, err := rest.HTTPClientFor(b.Config)
	if err != nil {
		b.T.Fatal(err)
	}
	address := fmt.Sprintf("%s/api/v1/namespaces/%s/services/https:virt-export-%s:443/proxy%s", b.Config.Host, b.Namespace, export, path)
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.T.Fatal(err)
	}
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// exportHarmed: a client without the token gets nothing; an interrupted download continues where it stopped; and the manifests
// restore the disk.
func exportHarmed(b *fixture.Volumes, v *fixture.Virtctl, export, volume, raw string) {
	b.T.Helper()
	disk, token := "/volumes/"+volume+"/disk.img", "x-kubevirt-export-token"
	for _, shown := range []string{"", "wrong"} {
		if answer := asksExport(b, export, disk, map[string]string{token: shown}); answer.StatusCode != http.StatusUnauthorized {
			b.T.Errorf("with token %q it is %s", shown, answer.Status)
		}
	}
	secret, err := b.Client.CoreV1().Secrets(b.Namespace).Get(b.Context(), "secret-"+export, metav1.GetOptions{})
	if err != nil {
		b.T.Fatal(err)
	}
	answer := asksExport(b, export, disk, map[string]string{token: string(secret.Data["token"]), "Range": "bytes=0-1048575"})
	if got, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusPartialContent || len(got) != fixture.MiB {
		b.T.Fatalf("the first MiB: %s, %d bytes, %v", answer.Status, len(got), err)
	}
	// What is there is not what was sent, so that a download that starts over is found out.
	path, mark := filepath.Join(b.T.TempDir(), "rest.img"), bytes.Repeat([]byte("!"), fixture.MiB)
	for name, text := range map[string][]byte{".part": mark, ".part.etag": []byte(answer.Header.Get("ETag"))} {
		if err := os.WriteFile(path+name, text, 0o600); err != nil {
			b.T.Fatal(err)
		}
	}
	v.Must("vmexport", "download", export, "--format=raw", "--output", path)
	got, failed := os.ReadFile(path)
	want, err := os.ReadFile(raw)
	if failed != nil || err != nil || len(got) != len(want) || !bytes.Equal(got[:fixture.MiB], mark) || !bytes.Equal(got[fixture.MiB:], want[fixture.MiB:]) {
		b.T.Errorf("%d bytes of %d, %v %v: it did not go on where it was", len(got), len(want), failed, err)
	}

	text := v.Must("vmexport", "download", export, "--manifest", "--include-secret")
	fixture.HasTexts(b.T, text, "kind: ConfigMap", "kind: DataVolume", "kind: Secret", "x-kubevirt-export-token:"+string(secret.Data["token"]))
	text = strings.NewReplacer("\n  name: "+volume+"\n", "\n  name: again\n", "\n  storage:\n", "\n  storage:\n    storageClassName: "+fixture.ClassImmediate+"\n").Replace(text)
	made := filepath.Join(b.T.TempDir(), "made.yaml")
	if err := os.WriteFile(made, []byte(text), 0o600); err != nil {
		b.T.Fatal(err)
	}
	b.Kubectl("apply", "-f", made)
	b.UntilPhase("again", cdiv1.Succeeded)
}
