//go:build apiserver

package apiserver

func volumes(list string) string { return vm("running: false", bare+", volumes: ["+list+"]") }

func disks(list string) string {
	return vm("running: false", "domain: {devices: {disks: ["+list+"]}}")
}

const iqn = `portal: "iqn.2017-01.io.kubevirt:sn.42", lun: 2`

func init() {
	machineRefusals = append(machineRefusals, networkRefusals...)
}

// networkRefusals are the sentences a network disk can be refused with.
var networkRefusals = []struct{ name, object, want string }{
	{"a port that is none", volumes(`{name: a, iscsi: {host: {name: h, port: 70000}, ` + iqn + `}}`), "a port is a number from 1 to 65535"},
	{"a port in words", volumes(`{name: a, iscsi: {host: {name: h, port: iscsi}, ` + iqn + `}}`), "should match '^[0-9]{1,5}$'"},
	{"a host with a path", volumes(`{name: a, iscsi: {host: {name: "h/x"}, ` + iqn + `}}`), "volumes[0].iscsi.host.name"},
	{"a target that is none", volumes(`{name: a, iscsi: {host: {name: h}, portal: "h:3260", lun: 1}}`), "volumes[0].iscsi.portal"},
	{"an image with a path", volumes(`{name: a, rbd: {monitors: [h], pool: "p", image: "x/../y"}}`), "volumes[0].rbd.image"},
	{"a cluster without monitors", volumes(`{name: a, rbd: {monitors: [], pool: p, image: i}}`), "should have at least 1 items"},
	{"a URL of another kind", volumes(`{name: a, accessMode: read-shared, http: {url: "ftp://h/x"}}`), "volumes[0].http.url"},
	{"a password in a URL", volumes(`{name: a, accessMode: read-shared, http: {url: "http://u:p@h/x"}}`), "volumes[0].http.url"},
	{"a URL to write to", volumes(`{name: a, http: {url: "http://h/x"}}`), "a disk at a URL can only be read"},
	{"a snapshot to write to", volumes(`{name: a, rbd: {monitors: [h], pool: p, image: i, snapshot: s}}`), "a snapshot can only be read"},
	{"a copy of nothing", volumes(`{name: a, copy: {mode: copy-on-write}, emptyDisk: {capacity: 1Mi}}`), "copy is for volumes that have a master"},
	{"a container disk without a copy", volumes(`{name: a, copy: {mode: none}, containerDisk: {image: i}}`), "copy.mode cannot be none"},
	{"an ephemeral volume without a copy", volumes(`{name: a, copy: {mode: none}, ephemeral: {persistentVolumeClaim: {claimName: c}}}`), "copy.mode cannot be none"},
	{"a container image without a copy", volumes(`{name: a, copy: {mode: none}, containerImage: {image: i}}`), "copy.mode cannot be none"},
	{"a container image to be kept", volumes(`{name: a, keepAs: mine, containerImage: {image: i}}`), "a machine from a container image cannot be kept"},
	{"a container image without a name", volumes(`{name: a, containerImage: {image: ""}}`), "volumes[0].containerImage.image"},
	{"a variable that is none", volumes(`{name: a, containerImage: {image: i, env: [{name: "A=B"}]}}`), "containerImage.env[0].name"},
	{"a variable twice", volumes(`{name: a, containerImage: {image: i, env: [{name: A}, {name: A}]}}`), "Duplicate value"},
	{"a variable from two places", volumes(`{name: a, containerImage: {image: i, env: [{name: A, value: b, valueFrom: {secretKeyRef: {name: s, key: k}}}]}}`), "a variable has a value, or it comes from somewhere"},
	{"a variable from nowhere", volumes(`{name: a, containerImage: {image: i, env: [{name: A, valueFrom: {}}]}}`), "exactly one of configMapKeyRef and secretKeyRef is required"},
	{"variables from nowhere", volumes(`{name: a, containerImage: {image: i, envFrom: [{prefix: A}]}}`), "exactly one of configMapRef and secretRef is required"},
	{"a copy to be added", volumes(`{name: a, copy: {mode: copy-on-write}, persistentVolumeClaim: {claimName: c, hotpluggable: true}}`), "a volume with a copy cannot be hotpluggable"},
	{"a volume to be kept that is no copy", volumes(`{name: a, keepAs: mine, persistentVolumeClaim: {claimName: c}}`), "keepAs is for volumes that the guest has a copy of"},
	{"a volume to be kept that has mode none", volumes(`{name: a, keepAs: mine, copy: {mode: none}, persistentVolumeClaim: {claimName: c}}`), "keepAs is for volumes that the guest has a copy of"},
	{"a copy mode that is none", volumes(`{name: a, copy: {mode: copy-on-tuesday}, persistentVolumeClaim: {claimName: c}}`), "Unsupported value: \"copy-on-tuesday\""},
	{"a usage type that is none", volumes(`{name: a, copy: {mode: copy-on-write, usageType: "Fast!"}, persistentVolumeClaim: {claimName: c}}`), "volumes[0].copy.usageType"},
	{"a copy without room", volumes(`{name: a, copy: {mode: copy-on-write, capacity: "0"}, persistentVolumeClaim: {claimName: c}}`), "copy.capacity must be more than 0"},
	{"a copy of a size that is none", disks(`{name: a, copy: {mode: copy-on-write, size: "-1"}, source: {pvc: {claimname: c}}}`), "copy.size must be more than 0"},
	{"a claim with the word of network disks", volumes(`{name: a, hotpluggable: true, persistentVolumeClaim: {claimName: c}}`), "hotpluggable is for network disks without a copy"},
	{"an access mode that is none", volumes(`{name: a, accessMode: read-only, nbd: {host: {name: h}}}`), "Unsupported value: \"read-only\""},
	{"a format that is none", volumes(`{name: a, nbd: {host: {name: h}, format: vmdk}}`), "Unsupported value: \"vmdk\""},
	{"two Secrets for TLS", volumes(`{name: a, nbd: {host: {name: h}, tls: {secretRef: {name: x}}}}, {name: b, nbd: {host: {name: h}, tls: {secretRef: {name: z}}}}`),
		"the NBD disks of a machine have one Secret for TLS"},
	{"a disk with two sources", disks(`{source: {nbd: {host: {name: h}}, pvc: {claimname: c}}}`), "a disk has one source"},
	{"a disk and a volume", vm("running: false", `domain: {devices: {disks: [{name: a, source: {nbd: {host: {name: h}}}}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Mi}}]`),
		"and so does the volume of that name: remove one of them"},
	{"a mode without a source", disks(`{name: a, access-mode: read-only}`), "copy and access-mode of a disk belong to its source"},
	{"a disk at a URL to write to", disks(`{name: a, source: {http: {url: "http://h/x"}}}`), "a disk at a URL can only be read"},
	{"an instance that says it at the disk", "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: i, namespace: team}, " +
		"spec: {domain: {devices: {disks: [{name: a, source: {nbd: {host: {name: h}}}}]}}}}", "an instance names what is in a disk in volumes"},
}
