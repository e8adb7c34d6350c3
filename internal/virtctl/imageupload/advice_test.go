package imageupload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// TestAdvice: an error is followed by advice, and by nothing if there is none.
func TestAdvice(t *testing.T) {
	u := &upload{Options: Options{Name: "disk"}, cluster: &kube.Client{Namespace: "team"}}
	pvc := &upload{Options: Options{Name: "disk", Claim: true}, cluster: u.cluster}
	to := proxyAddress{url: "https://proxy"}
	volumes := schema.GroupResource{Group: "cdi.kubevirt.io", Resource: "datavolumes"}
	forbidden := fmt.Errorf("create DataVolume disk: %w", apierrors.NewForbidden(volumes, "disk", errors.New("you may not")))
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"a name that is taken":       {u.taken("PVC %s already successfully populated", "disk"), "kubectl delete dv disk --namespace team"},
		"a claim's":                  {pvc.taken("PVC disk already successfully populated"), "kubectl delete pvc disk --namespace team"},
		"a volume that is stuck":     {u.stuck(errors.New("no class")), "To begin again: kubectl delete dv disk --namespace team"},
		"no right":                   {u.made(forbidden), "role edit"},
		"no right to upload":         {u.sent(fmt.Errorf("fetch an upload token: %w: %w", errToken, forbidden), to), "role edit"},
		"no such kind":               {u.made(apierrors.NewNotFound(volumes, "")), "Berth is not installed"},
		"something else":             {u.made(apierrors.NewInternalError(errors.New("down"))), ""},
		"no way to the proxy":        {u.sent(fmt.Errorf("error uploading image after 5 retries: %w", dial), to), "kubectl port-forward"},
		"a proxy that broke off":     {u.sent(errors.New("unexpected EOF"), to), "Repeat the command to go on where it was."},
		"a certificate of another's": {u.sent(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, to), "--insecure sends the image"},
		"no TLS":                     {u.sent(http.ErrSchemeMismatch, to), "--uploadproxy-url=http://"},
		"no proxy":                   {u.sent(&client.Refused{Status: 404, Message: "what?"}, to), "https://proxy is no upload proxy"},
		"an image that does not fit": {u.sent(&client.Refused{Status: 400, Message: "Saving stream failed"}, to), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			var advice interface{ Advice() string }
			if errors.As(row.err, &advice) {
				got = advice.Advice()
			}
			if row.err == nil || (row.want == "") != (got == "") || !strings.Contains(got, row.want) {
				t.Errorf("%v\nadvice %q, want %q", row.err, got, row.want)
			}
		})
	}
	if err := u.sent(nil, to); err != nil {
		t.Errorf("everything was sent: %v", err)
	}
}
