package claim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write what the tests made into testdata, for a person to review")

// sample is a class that only this row of the table, or an earlier one, can match.
func (r row) sample() storagev1.StorageClass {
	class := storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "sample"},
		Provisioner: strings.Replace(r.provisioner, "*", "prefix", 1),
	}
	if name, value, ok := strings.Cut(r.parameter, "="); ok {
		class.Parameters = map[string]string{name: strings.Replace(value, "*", "-4.1", 1)}
	}
	return class
}

// TestEveryProfile completes a 940Mi disk on every class of the table and writes down what comes out, so that a change
// of the table is a diff of testdata/profiles.txt that a person reads.
func TestEveryProfile(t *testing.T) {
	var got strings.Builder
	for i, r := range table {
		class := r.sample()
		if first := slices.IndexFunc(table, func(r row) bool { return r.matches(&class) }); first != i {
			t.Errorf("row %d (%s %s) can never match: row %d comes first", i, r.provisioner, r.parameter, first)
			continue
		}
		traits, _ := Recognize(&class)
		fmt.Fprintf(&got, "%s", r.provisioner)
		if r.parameter != "" {
			fmt.Fprintf(&got, " [%s]", r.parameter)
		}
		fmt.Fprintf(&got, "\n  clone: %s", traits.Clone)
		if traits.Cron != "" {
			fmt.Fprintf(&got, ", golden images: %s", traits.Cron)
		}
		if traits.Least != "" {
			fmt.Fprintf(&got, ", at least %s", traits.Least)
			if _, err := resource.ParseQuantity(traits.Least); err != nil {
				t.Errorf("%s: least size %q: %v", r.provisioner, traits.Least, err)
			}
		}
		fmt.Fprintf(&got, "\n  offers: %s\n  a disk of 940Mi: %s\n", describe(traits.Sets), completed(class))
	}
	path := filepath.Join("testdata", "profiles.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s is no longer what comes out; 'go test' with -update writes it, if this is meant (-want +got):\n%s", path, diff)
	}
}

func completed(class storagev1.StorageClass) string {
	request := Request{SizeIsDisk: true}
	request.Spec.StorageClassName = &class.Name
	request.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("940Mi")}
	result, err := Complete(request, Cluster{Classes: []storagev1.StorageClass{class}})
	if err != nil {
		return err.Error()
	}
	size := result.Spec.Resources.Requests[corev1.ResourceStorage]
	return fmt.Sprintf("%s %s %s", joinModes(result.Spec.AccessModes), *result.Spec.VolumeMode, size.String())
}

// TestOrder holds every row to the rule that makes the first set the best one for a machine.
func TestOrder(t *testing.T) {
	rank := []modes{"rwx-block", "rwo-block", "rwx-file", "rwo-file"}
	for _, r := range table {
		last := -1
		for word := range strings.FieldsSeq(string(r.modes)) {
			at := slices.Index(rank, modes(word))
			if at <= last {
				t.Errorf("%s: %q is misspelt or out of order in %q", r.provisioner, word, r.modes)
			}
			last = at
		}
	}
}

func TestUnknownProvisioner(t *testing.T) {
	for _, class := range []storagev1.StorageClass{
		{Provisioner: "example.com/tape"},
		{Provisioner: "evilrbd.csi.ceph.com"}, // no dot before the suffix
		{Provisioner: "csi.trident.netapp.io"},
		{Provisioner: "csi.trident.netapp.io", Parameters: map[string]string{"backendType": "tape"}},
	} {
		if traits, ok := Recognize(&class); ok {
			t.Errorf("%s %v is known as %+v", class.Provisioner, class.Parameters, traits)
		}
	}
}
