// Package crd holds the CustomResourceDefinitions of both groups, generated from their Go types, so that tests install
// exactly what users do.
package crd

import "embed"

//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen crd:maxDescLen=0 paths=kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1 output:crd:dir=cdi

// Files are the definitions, one YAML file each.
//
//go:embed cdi/*.yaml kubevirt/*.yaml
var Files embed.FS
