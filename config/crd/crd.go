// Package crd holds the CustomResourceDefinitions of every group, generated from their Go types, so that tests install
// exactly what users do.
package crd

import "embed"

//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen crd paths=kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1 output:crd:dir=cdi
//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen crd paths=kubevirt.io/api/instancetype/v1beta1 output:crd:dir=instancetype
// What those modules do not say of their fields.
//go:generate go run ./describe cdi instancetype
// What a volume comes from never changes, whether or not a webhook is there to say so: rights were asked for this source alone.
//go:generate sed -i -f datavolumes.sed cdi/cdi.kubevirt.io_datavolumes.yaml
// What that module's types do not say to a generator: scope and short names.
//go:generate sed -i s/Namespaced/Cluster/ instancetype/instancetype.kubevirt.io_virtualmachineclusterinstancetypes.yaml instancetype/instancetype.kubevirt.io_virtualmachineclusterpreferences.yaml
//go:generate sed -i "s/^    plural: virtualmachineinstancetypes/&\\n    shortNames: [vminstancetype, vminstancetypes, vmf, vmfs]/" instancetype/instancetype.kubevirt.io_virtualmachineinstancetypes.yaml
//go:generate sed -i "s/^    plural: virtualmachineclusterinstancetypes/&\\n    shortNames: [vmclusterinstancetype, vmclusterinstancetypes, vmcf, vmcfs]/" instancetype/instancetype.kubevirt.io_virtualmachineclusterinstancetypes.yaml
//go:generate sed -i "s/^    plural: virtualmachinepreferences/&\\n    shortNames: [vmpref, vmprefs, vmp, vmps]/" instancetype/instancetype.kubevirt.io_virtualmachinepreferences.yaml
//go:generate sed -i "s/^    plural: virtualmachineclusterpreferences/&\\n    shortNames: [vmcp, vmcps]/" instancetype/instancetype.kubevirt.io_virtualmachineclusterpreferences.yaml

// Files are the definitions, one YAML file each.
//
//go:embed access/*.yaml backup/*.yaml cdi/*.yaml clone/*.yaml export/*.yaml kubevirt/*.yaml instancetype/*.yaml migrations/*.yaml snapshot/*.yaml
var Files embed.FS
