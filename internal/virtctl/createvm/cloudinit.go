package createvm

import (
	"encoding/base64"
	"fmt"

	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// CloudInit is the data for cloud-init in the guest.
type CloudInit struct {
	Kind     string // nocloud, configdrive or none
	User     string
	Password string
	SSHKeys  []string
	// UserData and NetworkData are in base64; UserData excludes the others.
	UserData, NetworkData string
}

func (c CloudInit) empty() bool {
	return c.User == "" && c.Password == "" && len(c.SSHKeys) == 0 && c.UserData == "" && c.NetworkData == ""
}

// cloudInit adds the disk cloud-init looks for, if there is something to find on it.
func (b *builder) cloudInit() error {
	c := b.options.CloudInit
	switch c.Kind {
	case "none":
		if !c.empty() {
			return fmt.Errorf("--cloud-init none leaves no place for a user, a password, keys or data")
		}
		return nil
	case "nocloud", "configdrive":
	default:
		return fmt.Errorf("cloud-init %q is none of nocloud, configdrive, none", c.Kind)
	}
	if c.empty() {
		return nil
	}
	source, err := c.source()
	if err != nil {
		return err
	}
	const name = "cloudinitdisk"
	volume := kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: source}}
	if c.Kind == "configdrive" {
		volume.VolumeSource = kubevirt.VolumeSource{CloudInitConfigDrive: source}
	}
	b.spec().Volumes = append(b.spec().Volumes, volume)
	b.spec().Domain.Devices.Disks = append(b.spec().Domain.Devices.Disks, kubevirt.Disk{Name: name, DiskDevice: virtio()})
	return nil
}

func (c CloudInit) source() (*kubevirt.CloudInitSource, error) {
	for name, text := range map[string]string{"cloud-init-user-data": c.UserData, "cloud-init-network-data": c.NetworkData} {
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("--%s is not base64: %w", name, err)
		}
	}
	source := &kubevirt.CloudInitSource{UserDataBase64: c.UserData, NetworkDataBase64: c.NetworkData}
	if c.User == "" && c.Password == "" && len(c.SSHKeys) == 0 {
		return source, nil
	}
	if c.UserData != "" {
		return nil, fmt.Errorf("--cloud-init-user-data is all of the user data: it excludes --user, --password-file and --ssh-key")
	}
	config := struct {
		User     string         `json:"user,omitempty"`
		Password string         `json:"password,omitempty"`
		Expire   map[string]any `json:"chpasswd,omitempty"`
		Keys     []string       `json:"ssh_authorized_keys,omitempty"`
	}{User: c.User, Password: c.Password, Keys: c.SSHKeys}
	if c.Password != "" {
		config.Expire = map[string]any{"expire": false}
	}
	text, err := yaml.Marshal(config) //nolint:gosec // G117: the password is what the user wants to be in the manifest
	if err != nil {
		return nil, fmt.Errorf("write cloud-init's user data: %w", err)
	}
	source.UserData = "#cloud-config\n" + string(text)
	return source, nil
}
