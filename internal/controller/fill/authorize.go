package fill

import (
	"context"

	from "github.com/berth-vm/berth/internal/origin"
	"github.com/berth-vm/berth/internal/token"
)

// Verifier checks the proof that a clone across namespaces was allowed, and that it still is.
type Verifier = from.Verifier

// authorize says whether the volume may be cloned from another namespace.
func (e *Engine) authorize(ctx context.Context, s *Seen, at from.Ref) error {
	target := token.Object{Namespace: s.order.Namespace, Name: s.order.Name}
	return from.Authorized(ctx, e.tokens, s.order.Annotations[token.Annotation], at, target, s.order.Spec.SourceRef)
}
