package clonesource

import (
	"context"
	"errors"
	"fmt"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/token"
)

// ErrForbidden means that the volume's author may not clone its source.
var ErrForbidden = errors.New("not authorized")

// Verifier checks the proof that a clone across namespaces was allowed, and that it still is; admission makes the proof when
// the volume is created.
type Verifier interface {
	Verify(ctx context.Context, proof string, wanted token.Grant) error
}

// Object returns a claim or snapshot as proofs name it.
func (r Ref) Object() token.Object {
	return token.Object{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// Authorized returns nil if the DataVolume named target may be cloned from another namespace, ErrForbidden if not, and another
// error if it could not be found out. proof is the one the volume has, ref the DataSource that it names.
func Authorized(ctx context.Context, by Verifier, proof string, source Ref, target token.Object, ref *cdiv1.DataVolumeSourceRef) error {
	wanted := token.Grant{Source: source.Object(), Target: target}
	if ref != nil {
		wanted.Via = &token.Object{Namespace: orIn(ref.Namespace, target.Namespace), Name: ref.Name}
	}
	err := by.Verify(ctx, proof, wanted)
	if errors.Is(err, token.ErrMalformed) || errors.Is(err, token.ErrForged) || errors.Is(err, token.ErrOther) || errors.Is(err, token.ErrRevoked) {
		return fmt.Errorf("%w to clone from namespace %s (%w): create the DataVolume again as a user who may create "+
			"datavolumes/source there", ErrForbidden, source.Namespace, err)
	}
	return err
}
