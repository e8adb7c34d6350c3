package fill

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/token"
)

// errForbidden: whoever made the volume may not clone its source.
var errForbidden = errors.New("not authorized")

// Verifier checks the proof that a clone across namespaces was allowed, and that it still is; admission makes the proof when
// the volume is created.
type Verifier interface {
	Verify(ctx context.Context, proof string, wanted token.Grant) error
}

// authorize says whether the volume may be cloned from another namespace. errForbidden says no; another error that it
// could not be found out.
func (e *Engine) authorize(ctx context.Context, s *Seen) error {
	kind := "PersistentVolumeClaim"
	if s.source.Snapshot != nil {
		kind = "VolumeSnapshot"
	}
	namespace, name := s.originName()
	err := e.tokens.Verify(ctx, s.order.Annotations[token.Annotation], token.Grant{
		Source: token.Object{Kind: kind, Namespace: namespace, Name: name},
		Target: token.Object{Namespace: s.order.Namespace, Name: s.order.Name},
		Via:    s.via(),
	})
	if errors.Is(err, token.ErrMalformed) || errors.Is(err, token.ErrForged) || errors.Is(err, token.ErrOther) || errors.Is(err, token.ErrRevoked) {
		return fmt.Errorf("%w to clone from namespace %s (%w): create the DataVolume again as a user who may create "+
			"datavolumes/source there", errForbidden, namespace, err)
	}
	return err
}

// via is the DataSource that the order names.
func (s *Seen) via() *token.Object {
	ref := s.order.Spec.SourceRef
	if ref == nil {
		return nil
	}
	namespace := s.order.Namespace
	if ref.Namespace != nil && *ref.Namespace != "" {
		namespace = *ref.Namespace
	}
	return &token.Object{Namespace: namespace, Name: ref.Name}
}
