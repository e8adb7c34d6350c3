//go:build apiserver

package apiserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/machinefields"
)

// heard collects the warnings of the API server.
type heard struct {
	mutex sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _ string, text string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.texts = append(h.texts, text)
}

// listening returns a client whose warnings are heard.
func listening(t *testing.T) (client.Client, *heard) {
	t.Helper()
	h := &heard{}
	config := rest.CopyConfig(baseCfg)
	config.Impersonate.UserName = "alice" // we ourselves are not checked
	config.WarningHandler, config.WarningHandlerWithContext = h, nil
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return c, h
}

// TestManifestsOfKubeVirt: ordinary manifests for KubeVirt apply with strict validation, and each of their fields without effect is warned of,
// as the comment in its file says.
func TestManifestsOfKubeVirt(t *testing.T) {
	files, err := filepath.Glob("testdata/kubevirt/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			o := object(string(text))
			o.SetNamespace(team)
			at := "spec."
			if o.GetKind() == "VirtualMachine" {
				at = "spec.template.spec."
			}
			c, warned := listening(t)
			must(t, c.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")))
			var got, want []string
			for _, w := range warned.texts {
				path, _, found := strings.Cut(w, " has no effect: ")
				if !found {
					t.Errorf("warning %q", w)
				}
				got = append(got, path)
			}
			for line := range strings.Lines(string(text)) {
				if list, ok := strings.CutPrefix(line, "# warns: "); ok {
					for path := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
						want = append(want, at+path)
					}
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("warned of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// refusedFields are manifests with each of the fields that are not supported.
var refusedFields = map[string]string{
	"domain.cpu.dedicatedCpuPlacement":          "domain: {cpu: {dedicatedCpuPlacement: true}, devices: {}}",
	"domain.cpu.isolateEmulatorThread":          "domain: {cpu: {isolateEmulatorThread: true}, devices: {}}",
	"domain.cpu.numa":                           "domain: {cpu: {numa: {guestMappingPassthrough: {}}}, devices: {}}",
	"domain.cpu.realtime":                       "domain: {cpu: {realtime: {mask: 0-3}}, devices: {}}",
	"domain.devices.autoattachVSOCK":            "domain: {devices: {autoattachVSOCK: true}}",
	"domain.devices.disks[].lun.reservation":    "domain: {devices: {disks: [{name: a, lun: {reservation: true}}]}}, volumes: [{name: a, persistentVolumeClaim: {claimName: a}}]",
	"domain.devices.downwardMetrics":            "domain: {devices: {downwardMetrics: {}}}",
	"domain.devices.filesystems":                "domain: {devices: {filesystems: [{name: a, virtiofs: {}}]}}",
	"domain.devices.gpus":                       "domain: {devices: {gpus: [{name: gpu1, deviceName: nvidia.com/TU104GL_Tesla_T4}]}}",
	"domain.devices.hostDevices":                "domain: {devices: {hostDevices: [{name: a, deviceName: b}]}}",
	"domain.devices.interfaces[].binding":       "domain: {devices: {interfaces: [{name: default, binding: {name: a}}]}}, networks: [{name: default, pod: {}}]",
	"domain.devices.interfaces[].macvtap":       "domain: {devices: {interfaces: [{name: default, macvtap: {}}]}}, networks: [{name: default, pod: {}}]",
	"domain.devices.interfaces[].sriov":         "domain: {devices: {interfaces: [{name: default, sriov: {}}]}}, networks: [{name: default, pod: {}}]",
	"domain.devices.tpm.persistent":             "domain: {devices: {tpm: {persistent: true}}}",
	"domain.devices.watchdog.diag288":           "domain: {devices: {watchdog: {name: a, diag288: {action: reset}}}}",
	"domain.firmware.bootloader.efi.secureBoot": "domain: {firmware: {bootloader: {efi: {secureBoot: true}}}, devices: {}}",
	"domain.launchSecurity":                     "domain: {launchSecurity: {sev: {policy: {encryptedState: true}}}, devices: {}}",
	"networks[].multus":                         "domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, multus: {networkName: blue}}]",
	"networks[].resourceClaim":                  "domain: {devices: {}}, networks: [{name: a, resourceClaim: {claimName: a}}]",
	"resourceClaims":                            "domain: {devices: {}}, resourceClaims: [{name: a, resourceClaimName: b}]",
	"utilityVolumes":                            "domain: {devices: {}}, utilityVolumes: [{name: a, claimName: b}]",
	"volumes[].containerPath":                   "domain: {devices: {}}, volumes: [{name: a, containerPath: {path: /etc}}]",
	"volumes[].downwardMetrics":                 "domain: {devices: {}}, volumes: [{name: a, downwardMetrics: {}}]",
	"volumes[].memoryDump":                      "domain: {devices: {}}, volumes: [{name: a, memoryDump: {claimName: b}}]",
	"volumes[].serviceAccount":                  "domain: {devices: {}}, volumes: [{name: a, serviceAccount: {serviceAccountName: default}}]",
}

// TestRefusedFields: each field that the reference calls refused is refused, in machines and in instances, with the sentence of the table.
func TestRefusedFields(t *testing.T) {
	for _, f := range machinefields.Instance {
		if f.Effect != machinefields.Refused {
			continue
		}
		t.Run(f.Path, func(t *testing.T) {
			spec, ok := refusedFields[f.Path]
			if !ok {
				t.Fatal("no manifest has it")
			}
			for _, text := range []string{vm("running: false", spec), "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: m, namespace: team}, spec: {" + spec + "}}"} {
				err := users["alice"].Create(t.Context(), object(text), client.DryRunAll, client.FieldValidation("Strict"))
				if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(f.Path, "[]", "[0]")+" is not supported: "+f.Note) {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
}

// instanceRefusals are the sentences an instance is refused with, as a machine is.
var instanceRefusals = []struct{ name, spec, want string }{
	{"a drive with nothing in it", "domain: {devices: {disks: [{name: lost}]}}", "spec.domain.devices.disks[0].Name 'lost' not found."},
	{"a volume from two places", bare + ", volumes: [{name: root, emptyDisk: {capacity: 1Gi}, dataVolume: {name: a}}]", "spec.volumes[0] must have exactly one source type set"},
	{"a disk of two kinds", "domain: {devices: {disks: [{name: a, disk: {}, cdrom: {}}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]",
		"spec.domain.devices.disks[0] can only have a single target type defined"},
	{"two disks that are first", "domain: {devices: {disks: [{name: a, bootOrder: 1}, {name: b, bootOrder: 1}]}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]",
		"Boot order for spec.domain.devices.disks[1].bootOrder already set for a different device."},
	{"a disk and an interface that are first", "domain: {devices: {disks: [{name: a, bootOrder: 1}], interfaces: [{name: default, masquerade: {}, bootOrder: 1}]}}, networks: [{name: default, pod: {}}], volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]",
		"Boot order for spec.domain.devices.interfaces[0].bootOrder already set for a different device."},
	{"a bad address", "domain: {devices: {interfaces: [{name: default, masquerade: {}, macAddress: de:ad}]}}, networks: [{name: default, pod: {}}]",
		"interface spec.domain.devices.interfaces[0].name has malformed MAC address (de:ad)."},
}

func TestInstanceRefusals(t *testing.T) {
	for _, r := range instanceRefusals {
		t.Run(r.name, func(t *testing.T) {
			instance := "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: m, namespace: team}, spec: {" + r.spec + "}}"
			for text, want := range map[string]string{instance: r.want, vm("running: false", r.spec): strings.ReplaceAll(r.want, "spec.", "spec.template.spec.")} {
				err := users["alice"].Create(t.Context(), object(text), client.DryRunAll, client.FieldValidation("Strict"))
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
		})
	}
	unsaid := "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: m, namespace: team}, spec: {template: {spec: {" + bare + "}}}}"
	if err := admin.Create(t.Context(), object(unsaid), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "RunStrategy must be specified") {
		t.Errorf("a machine without a run strategy: %v", err)
	}
	both := vm("running: false, runStrategy: Always", bare)
	if err := admin.Create(t.Context(), object(both), client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead") {
		t.Errorf("a machine with two: %v", err)
	}
}
