//go:build apiserver

package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/admission"
	"github.com/berth-vm/berth/internal/controller/hookpath"
)

// hookPaths returns the paths of the webhooks that fail closed, and of the one that moves guests, by the webhook's name.
func hookPaths(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	take := func(name string, c admissionregistration.WebhookClientConfig) {
		all[name] = ""
		if c.Service.Path != nil {
			all[name] = *c.Service.Path
		}
	}
	for _, name := range []string{admission.Validating, admission.ValidatingMachine} {
		var c admissionregistration.ValidatingWebhookConfiguration
		must(t, admin.Get(t.Context(), types.NamespacedName{Name: name}, &c))
		for _, h := range c.Webhooks {
			take(h.Name, h.ClientConfig)
		}
	}
	var c admissionregistration.MutatingWebhookConfiguration
	must(t, admin.Get(t.Context(), types.NamespacedName{Name: admission.Mutating}, &c))
	for _, h := range c.Webhooks {
		take(h.Name, h.ClientConfig)
	}
	return all
}

// review posts a review to the webhook server, as any pod can.
func review(t *testing.T, path, body string) (int, string) {
	t.Helper()
	to := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := to.Post(fmt.Sprintf("https://127.0.0.1:%d%s", ports[0], path), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(text)
}

// TestWebhookPaths: every webhook has a path with a word of its own, which is in no manifest and opens the webhook; without the
// word there is nothing, the caller. Applying the manifests again keeps the paths, and a path that an administrator sets is
// overwritten.
func TestWebhookPaths(t *testing.T) {
	const ask = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":"team","name":"x",
		"userInfo":{"username":"admin","groups":["system:masters"]},"object":{"metadata":{"name":"x"},"spec":{"source":{"pvc":{"namespace":"golden","name":"fedora"}}}}}}`
	before, words := hookPaths(t), map[string]bool{}
	if len(before) != len(admission.Paths) {
		t.Fatalf("%d webhooks for %d paths", len(before), len(admission.Paths))
	}
	for name, plain := range admission.Paths {
		word, ok := strings.CutSuffix(before[name], plain)
		if !ok || len(word) < 40 || words[word] {
			t.Errorf("webhook %s is at %s", name, before[name])
		}
		words[word] = true
		if code, said := review(t, plain, ask); code != http.StatusNotFound || said != "" {
			t.Errorf("%s answers anybody: %d %s", plain, code, said)
		}
	}
	if code, said := review(t, before["authorise.datavolume.cdi.kubevirt.io"], ask); code != http.StatusOK || !strings.Contains(said, `"uid":"1"`) {
		t.Errorf("with the word: %d %s", code, said)
	}
	root, err := moduleRoot()
	must(t, err)
	for range 2 {
		for _, file := range []string{"validating.yaml", "machine.yaml", "mutating.yaml"} {
			text, err := os.ReadFile(filepath.Join(root, "config", "webhook", file))
			must(t, err)
			u := object(string(text))
			setPort(u, ports[0])
			must(t, admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl")))
		}
	}
	if now := hookPaths(t); now["authorise.datavolume.cdi.kubevirt.io"] != before["authorise.datavolume.cdi.kubevirt.io"] {
		t.Errorf("the manifests, applied again, made %s of %s", now["authorise.datavolume.cdi.kubevirt.io"], before["authorise.datavolume.cdi.kubevirt.io"])
	}
	for _, patch := range []string{
		`[{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "/authorise/datavolumes"}]`,
		`[{"op": "remove", "path": "/webhooks/0/clientConfig/service/path"}]`,
	} {
		c := &admissionregistration.MutatingWebhookConfiguration{}
		c.Name = admission.Mutating
		must(t, admin.Patch(t.Context(), c, client.RawPatch(types.JSONPatchType, []byte(patch))))
		eventually(t, "the path is put back", func() (bool, error) {
			now := hookPaths(t)["authorise.datavolume.cdi.kubevirt.io"]
			return now == before["authorise.datavolume.cdi.kubevirt.io"], fmt.Errorf("it is %s", now)
		})
	}
	must(t, waitForWebhooks(context.WithoutCancel(t.Context()), make(chan error)))
}

// TestWebhookKeysAreReplaced deletes the Secret: other paths are written, the old ones open nothing, and the webhooks answer.
func TestWebhookKeysAreReplaced(t *testing.T) {
	const evict = "virt-launcher-eviction-interceptor.kubevirt.io"
	before := hookPaths(t)[evict]
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = home, hookpath.Secret
	must(t, admin.Delete(t.Context(), secret))
	eventually(t, "another path", func() (bool, error) {
		now := hookPaths(t)[evict]
		return now != before && strings.HasSuffix(now, admission.PathEvict), fmt.Errorf("it is %s", now)
	})
	if code, said := review(t, before, "{}"); code != http.StatusNotFound || said != "" {
		t.Errorf("the path from before answers: %d %s", code, said)
	}
	must(t, waitForWebhooks(context.WithoutCancel(t.Context()), make(chan error)))
}

// TestControllerOfAnEarlierVersion: while one is there the plain paths are used, because it knows no others, and are answered here too. When it is gone,
// the words are back.
func TestControllerOfAnEarlierVersion(t *testing.T) {
	const name = "authorise.datavolume.cdi.kubevirt.io"
	old := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: "berth"}}}}
	old.Namespace, old.Name = home, "berth-controller-old"
	old.Labels = map[string]string{"app.kubernetes.io/name": "berth", "app.kubernetes.io/component": "controller"}
	create(t, admin, old)
	eventually(t, "the plain path", func() (bool, error) {
		now := hookPaths(t)[name]
		return now == admission.PathAuthorise, fmt.Errorf("it is %s", now)
	})
	must(t, waitForWebhooks(context.WithoutCancel(t.Context()), make(chan error)))
	must(t, client.IgnoreNotFound(admin.Delete(t.Context(), old, client.GracePeriodSeconds(0))))
	eventually(t, "a path with a word", func() (bool, error) {
		now := hookPaths(t)[name]
		return now != admission.PathAuthorise && strings.HasSuffix(now, admission.PathAuthorise), fmt.Errorf("it is %s", now)
	})
	must(t, waitForWebhooks(context.WithoutCancel(t.Context()), make(chan error)))
	eventually(t, "nothing at the plain path", func() (bool, error) {
		code, said := review(t, admission.PathAuthorise, "{}")
		return code == http.StatusNotFound && said == "", fmt.Errorf("%d %s", code, said)
	})
}
