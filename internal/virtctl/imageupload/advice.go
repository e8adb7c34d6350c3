package imageupload

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-vm/berth/internal/upload/client"
)

// adviceError is an error with what can be done about it.
type adviceError struct {
	error
	advice string
}

func (e *adviceError) Unwrap() error { return e.error }

// Advice is printed below the error.
func (e *adviceError) Advice() string { return e.advice }

func advise(err error, format string, args ...any) error {
	return &adviceError{error: err, advice: fmt.Sprintf(format, args...)}
}

// kindName returns how kubectl calls what is filled.
func (u *upload) kindName() string {
	if u.Claim {
		return "pvc"
	}
	return "dv"
}

// taken: there is a volume of that name which cannot take the upload.
func (u *upload) taken(format string, args ...any) error {
	return advise(fmt.Errorf(format, args...), "Choose another name, or delete it if nobody needs it: kubectl delete %s %s --namespace %s",
		u.kindName(), u.Name, u.cluster.Namespace)
}

// stuck: the volume that was made, by this command or before it, will never take the upload.
func (u *upload) stuck(err error) error {
	return advise(err, "To begin again: kubectl delete %s %s --namespace %s, and repeat the command.", u.kindName(), u.Name, u.cluster.Namespace)
}

// made adds advice to the error of creating an object.
func (u *upload) made(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return advise(err, "If it is a right that you lack, a user with role admin in namespace %s can give you role edit there.", u.cluster.Namespace)
	case apierrors.IsNotFound(err): // the kind, or the namespace: it says which
		return advise(err, "Either namespace %s does not exist, or Berth is not installed in this cluster.", u.cluster.Namespace)
	}
	return err
}

// sent adds advice to the error of sending the file.
func (u *upload) sent(err error, to proxyAddress) error {
	var untrusted *tls.CertificateVerificationError
	var refused *client.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &untrusted):
		return advise(err, "The certificate at %s is not what the cluster says its upload proxy has. Is that the right address?\n"+
			"--insecure sends the image, and a token for this volume, to any server there.", to.url)
	case errors.Is(err, http.ErrSchemeMismatch):
		return advise(err, "What answers at %s speaks no TLS. If that is right, say so: --uploadproxy-url=http://...", to.url)
	case errors.As(err, &refused):
		if refused.Status == http.StatusNotFound || refused.Status == http.StatusMethodNotAllowed {
			return advise(err, "What answers at %s is no upload proxy. Leave --uploadproxy-url out to use the one the cluster names.", to.url)
		}
		return err
	case errors.Is(err, errToken):
		return u.made(err)
	}
	const goOn = "Repeat the command to go on where it was."
	if away := (*net.OpError)(nil); errors.As(err, &away) && away.Op == "dial" {
		return advise(err, goOn+" If %s cannot be reached from here at all, this makes a way:\n"+
			"  kubectl port-forward --namespace berth service/cdi-uploadproxy 8443:443\n"+
			"  and repeat the command with --uploadproxy-url=https://localhost:8443", to.url)
	}
	return advise(err, goOn)
}

// errToken: the cluster gave no right to upload.
var errToken = errors.New("authentication failed")
