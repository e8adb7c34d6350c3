package metadata

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const snapshotGroup = "snapshot.storage.k8s.io"

var (
	snapshots = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshots"}
	contents  = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
)

// managedBy is the label that the snapshot-controller gives a content whose node takes care of it.
const managedBy = "snapshot.storage.kubernetes.io/managed-by"

// allowed asks the API server whose a token is, whether it is for this service, and whether that user may read the snapshots of a
// namespace. It returns the user's name.
func (s *Server) allowed(ctx context.Context, token, namespace string) (string, error) {
	review, err := s.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{s.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", status.Errorf(codes.Unavailable, "ask whose the token is: %v", err)
	}
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, s.Audience) {
		return "", status.Errorf(codes.Unauthenticated, "the token is not one for the audience %q", s.Audience)
	}
	user, extra := review.Status.User, map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err := s.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Group: snapshots.Group, Version: snapshots.Version, Resource: snapshots.Resource, Namespace: namespace,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", status.Errorf(codes.Unavailable, "ask what %s may do: %v", user.Username, err)
	}
	if !access.Status.Allowed || access.Status.Denied {
		return "", status.Errorf(codes.PermissionDenied, "%s may not get volumesnapshots in namespace %s", user.Username, namespace)
	}
	return user.Username, nil
}

// place is the node and the path of a snapshot.
type place struct {
	handle string // in CSI
	node   string // empty: it is not of a node
}

// find reads a VolumeSnapshot and the content that it is bound to.
func (s *Server) find(ctx context.Context, namespace, name string) (place, error) {
	snapshot, err := s.Objects.Resource(snapshots).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return place{}, unread("VolumeSnapshot "+namespace+"/"+name, err)
	}
	ready, _, _ := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
	bound := text(snapshot, "status", "boundVolumeSnapshotContentName")
	if !ready || bound == "" {
		return place{}, status.Errorf(codes.Unavailable, "VolumeSnapshot %s/%s is not ready", namespace, name)
	}
	content, err := s.Objects.Resource(contents).Get(ctx, bound, metav1.GetOptions{})
	if err != nil {
		return place{}, unread("VolumeSnapshotContent "+bound, err)
	}
	if text(content, "spec", "driver") != s.Driver {
		return place{}, status.Errorf(codes.InvalidArgument, "VolumeSnapshot %s/%s is not of the driver %s", namespace, name, s.Driver)
	}
	// what a snapshot says is not enough: the content names the one snapshot that it is for
	if text(content, "spec", "volumeSnapshotRef", "namespace") != namespace || text(content, "spec", "volumeSnapshotRef", "name") != name ||
		text(content, "spec", "volumeSnapshotRef", "uid") != string(snapshot.GetUID()) {
		return place{}, status.Errorf(codes.Unavailable, "VolumeSnapshotContent %s is not bound to VolumeSnapshot %s/%s", bound, namespace, name)
	}
	handle := text(content, "status", "snapshotHandle")
	if handle == "" {
		return place{}, status.Errorf(codes.Unavailable, "VolumeSnapshotContent %s has no handle yet", bound)
	}
	return place{handle: handle, node: content.GetLabels()[managedBy]}, nil
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func unread(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return status.Errorf(codes.NotFound, "%s does not exist", what)
	}
	return status.Errorf(codes.Unavailable, "read %s: %v", what, err)
}
