package config

import (
	"context"
	"fmt"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader gives the settings in force at this moment. With a manager's cached client a read costs no request.
type Reader struct{ client client.Reader }

// NewReader reads the settings through c, which must know the kinds of cdi.kubevirt.io.
func NewReader(c client.Reader) Reader { return Reader{client: c} }

// Settings reads the active CDI resource. That there is none is no error: the shipped settings hold.
func (r Reader) Settings(ctx context.Context) (Settings, error) {
	var all cdiv1.CDIList
	if err := r.client.List(ctx, &all); err != nil {
		return Settings{}, fmt.Errorf("list CDI resources: %w", err)
	}
	return Effective(active(all.Items)), nil
}

// active returns the CDI resource that counts: the oldest one that is not being deleted. Nil means none.
func active(all []cdiv1.CDI) *cdiv1.CDI {
	var found *cdiv1.CDI
	for i := range all {
		c := &all[i]
		if c.DeletionTimestamp == nil && (found == nil || older(c, found)) {
			found = c
		}
	}
	return found
}

func older(a, b *cdiv1.CDI) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
