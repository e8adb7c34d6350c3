package aggregated

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	ofInstances  = "/namespaces/{namespace}/virtualmachineinstances/{name}"
	noEncryption = "the memory of guests is not encrypted"
	noProfiler   = "programs are not profiled through the API"
	notSupported = "not supported: "
	// toolsPath is the path that virtctl requests for the image of its verb guestfs. virtctl does not read a Status there, and shows
	// only the text of an error.
	toolsPath = "/guestfs"
)

// outOfScope are the subresources that KubeVirt's clients ask for and Berth does not have, and why. Without a row they were not found, which
// reads as if Berth was not installed.
var outOfScope = map[string]string{
	"GET " + toolsPath:                                   "there is no image of libguestfs-tools here: name one with --image",
	"GET " + ofInstances + "/usbredir":                   "devices of a client are not given to a guest",
	"GET " + ofInstances + "/vsock":                      "a guest has no vsock device",
	"GET " + ofInstances + "/sev/fetchcertchain":         noEncryption,
	"GET " + ofInstances + "/sev/querylaunchmeasurement": noEncryption,
	"PUT " + ofInstances + "/sev/setupsession":           noEncryption,
	"PUT " + ofInstances + "/sev/injectlaunchsecret":     noEncryption,
	"GET /start-cluster-profiler":                        noProfiler,
	"GET /stop-cluster-profiler":                         noProfiler,
	"GET /dump-cluster-profiler":                         noProfiler,
}

// refuseOutOfScope answers what is out of scope, below the path of one version of the subresources.
func (s *Server) refuseOutOfScope(mux *http.ServeMux, base string) {
	for pattern, why := range outOfScope {
		method, path, _ := strings.Cut(pattern, " ")
		if path == toolsPath {
			mux.HandleFunc(method+" "+base+path, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, notSupported+why, http.StatusNotImplemented)
			})
			continue
		}
		mux.HandleFunc(method+" "+base+path, s.answer(func(asked) (int, any, error) {
			return 0, nil, apierrors.NewBadRequest(notSupported + why)
		}))
	}
}
