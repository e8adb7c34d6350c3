package main

import (
	"slices"
	"testing"
)

// The flag replaces the gates of the resource Berth starts with; without it they are as the resource has them.
func TestFirstFeatureGates(t *testing.T) {
	text := func(s string) *string { return &s }
	for about, c := range map[string]struct {
		gates *string
		want  []string
	}{
		"no flag": {nil, []string{"HonorWaitForFirstConsumer"}},
		"none":    {text(""), nil},
		"two":     {text("HonorWaitForFirstConsumer,DataVolumeClaimAdoption"), []string{"HonorWaitForFirstConsumer", "DataVolumeClaimAdoption"}},
	} {
		first, err := firstConfig(c.gates)
		if err != nil {
			t.Fatal(err)
		}
		if got := first.Spec.Config.FeatureGates; !slices.Equal(got, c.want) {
			t.Errorf("%s: gates %v, want %v", about, got, c.want)
		}
	}
}
