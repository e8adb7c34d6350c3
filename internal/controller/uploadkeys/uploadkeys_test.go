package uploadkeys

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

// counting makes other files each time.
type counting struct{ made int }

func (c *counting) Worker(context.Context, string) (map[string][]byte, error) {
	c.made++
	return map[string][]byte{"tls.crt": []byte(strconv.Itoa(c.made))}, nil
}

// TestKeysOfAWorker: a worker has its files before it is made, new ones once a day while it waits, and none after its end.
func TestKeysOfAWorker(t *testing.T) {
	w := filltest.New(t, filltest.Scene{})
	k := New(&counting{}, w.Writer)
	begun := w.Clock.Now()
	worker := Worker{Namespace: filltest.Team, Name: "upload", Claim: "claim-uid", Now: begun}
	has := func() string {
		t.Helper()
		if s := filltest.Get[corev1.Secret](w, filltest.Team, "upload"); s != nil {
			return string(s.Data["tls.crt"])
		}
		return ""
	}
	w.Must(k.Issue(t.Context(), worker))
	if has() != "1" {
		t.Errorf("at first it has %q", has())
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{time.Hour, "1"}, {25 * time.Hour, "2"}, {26 * time.Hour, "2"}, {50 * time.Hour, "3"}} {
		worker.Now = begun.Add(c.after)
		w.Must(k.Renew(t.Context(), worker, metav1.NewTime(begun)))
		if has() != c.want {
			t.Errorf("after %s it has %q, want %q", c.after, has(), c.want)
		}
	}
	w.Must(k.Revoke(t.Context(), worker))
	if has() != "" {
		t.Errorf("after its end it has %q", has())
	}
	again := New(&counting{made: 10}, w.Writer) // a controller that was started since remembers nothing
	w.Must(again.Renew(t.Context(), worker, metav1.NewTime(begun)))
	if has() != "11" {
		t.Errorf("after a restart it has %q", has())
	}
}
