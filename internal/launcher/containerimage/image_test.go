package containerimage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/task"
)

// TestProgram: what a machine says about its program changes what the image says as it does for a container.
func TestProgram(t *testing.T) {
	image := v1.Config{Entrypoint: []string{"/run"}, Cmd: []string{"all"}, Env: []string{"A=image", "B=image", "EMPTY="}, User: "app", WorkingDir: "/app", StopSignal: "SIGQUIT"}
	from := func(name string) kubevirt.EnvVar {
		return kubevirt.EnvVar{Name: name, ValueFrom: &kubevirt.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
	}
	own := []string{"PATH=/launcher", launcherapi.EnvFromPrefix + "B=map", launcherapi.EnvFromPrefix + "C=map=with=signs", launcherapi.EnvPrefix + "D=secret"}
	for name, c := range map[string]struct {
		says kubevirt.ContainerImageSource
		own  []string
		want imagevm.Orders
	}{
		"nothing": {want: imagevm.Orders{Command: []string{"/run", "all"}, Env: []string{"A=image", "B=image", "EMPTY="}, Dir: "/app"}},
		"args":    {says: kubevirt.ContainerImageSource{Args: []string{"one"}}, want: imagevm.Orders{Command: []string{"/run", "one"}, Env: []string{"A=image", "B=image", "EMPTY="}, Dir: "/app"}},
		"command": {says: kubevirt.ContainerImageSource{Command: []string{"/other"}, WorkingDir: "/"},
			want: imagevm.Orders{Command: []string{"/other"}, Env: []string{"A=image", "B=image", "EMPTY="}, Dir: "/"}},
		"both": {says: kubevirt.ContainerImageSource{Command: []string{"/other"}, Args: []string{"x"}},
			want: imagevm.Orders{Command: []string{"/other", "x"}, Env: []string{"A=image", "B=image", "EMPTY="}, Dir: "/app"}},
		"environment": {own: own, says: kubevirt.ContainerImageSource{Env: []kubevirt.EnvVar{{Name: "A", Value: "machine"}, from("D"), from("ABSENT")}},
			want: imagevm.Orders{Command: []string{"/run", "all"}, Env: []string{"EMPTY=", "B=map", "C=map=with=signs", "A=machine", "D=secret"}, Dir: "/app"}},
	} {
		c.want.User, c.want.Stop = "app", "SIGQUIT"
		if diff := cmp.Diff(c.want, program(&c.says, image, c.own)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestImageOrder: a registry is spoken to without TLS only for the volumes that the launcher is told.
func TestImageOrder(t *testing.T) {
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{
		Image: "reg:5000/team/web:1", ImagePullSecret: "login", CertConfigMap: "roots"}}}
	want := task.Registry{URL: "docker://reg:5000/team/web:1"}
	want.CredentialsDir, want.CADir = "/at/"+netdisk.CredentialsDir, "/at/"+netdisk.CADir
	for plain, names := range map[bool][]string{false: {"other"}, true: {"other", "root"}} {
		want.PlainHTTP, want.Insecure = plain, plain
		if diff := cmp.Diff(want, imageOrder(launcherapi.Machine{Plain: names}, v, "/at")); diff != "" {
			t.Errorf("told of %v (-want +got):\n%s", names, diff)
		}
	}
}
