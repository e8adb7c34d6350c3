// Package v1alpha1 has the kind of migrations.kubevirt.io/v1alpha1: the fields that Berth knows, spelled as kubevirt.io spells them.
//
// It is data only; which policy a migration has is decided in internal/decide/migration.
//
// +kubebuilder:object:generate=true
// +groupName=migrations.kubevirt.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/migrations

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "migrations.kubevirt.io", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MigrationPolicy{}, &MigrationPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
