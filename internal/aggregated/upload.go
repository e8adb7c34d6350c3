package aggregated

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/token"
)

// tokenLasts is long enough to begin an upload with. One that is under way is not ended when its token expires, and one
// that is interrupted asks for another.
const tokenLasts = 5 * time.Minute

// grant returns a token for the named claim. A user who may create the request may upload.
func (s *Server) grant(a asked) (int, any, error) {
	var r uploadv1.UploadTokenRequest
	if err := a.into(&r); err != nil {
		return 0, nil, err
	}
	switch {
	case r.Spec.PvcName == "":
		return 0, nil, apierrors.NewBadRequest("spec.pvcName is required: the PVC to upload to")
	case r.Namespace != "" && r.Namespace != a.namespace:
		return 0, nil, apierrors.NewBadRequest("the namespace of the object does not match the namespace on the request")
	}
	dry, err := a.dry(nil)
	if err != nil {
		return 0, nil, err
	}
	claim, err := s.Cluster.Claim(a.Context(), a.namespace, r.Spec.PvcName)
	if err != nil {
		return 0, nil, err
	}
	now := time.Now()
	r.TypeMeta = metav1.TypeMeta{Kind: "UploadTokenRequest", APIVersion: Upload.Name + "/" + Upload.Versions[0]}
	r.Namespace, r.UID, r.CreationTimestamp = a.namespace, types.UID(uuid.NewUUID()), metav1.NewTime(now)
	if dry {
		return http.StatusCreated, &r, nil
	}
	key, err := s.Key(now)
	if err != nil {
		return 0, nil, apierrors.NewServiceUnavailable(err.Error())
	}
	r.Status.Token, err = token.SignUpload(key, token.Claim{
		Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID),
	}, now.Add(tokenLasts))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, &r, nil
}
