package guest

import (
	"encoding/json"
	"fmt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
)

// dataSource is the disk cloud-init looks for: its label and its files.
type dataSource struct {
	label string
	files map[string]content
}

// content is one file: given as it is, in base64, or in a mounted secret.
type content struct {
	inline, encoded string
	secret          string
	keys            []string
}

func userData(s *kubevirt.CloudInitSource) content {
	c := content{inline: s.UserData, encoded: s.UserDataBase64}
	if s.UserDataSecretRef != nil {
		c.secret, c.keys = launch.UserDataMount, []string{"userdata", "userData"}
	}
	return c
}

func networkData(s *kubevirt.CloudInitSource) (content, bool) {
	c := content{inline: s.NetworkData, encoded: s.NetworkDataBase64}
	if s.NetworkDataSecretRef != nil {
		c.secret, c.keys = launch.NetworkDataMount, []string{"networkdata", "networkData"}
	}
	return c, c.inline+c.encoded+c.secret != ""
}

// noCloud is the NoCloud data source.
func noCloud(m launch.Machine, s *kubevirt.CloudInitSource) dataSource {
	meta := fmt.Sprintf("instance-id: %s.%s\nlocal-hostname: %s\n", m.Name, m.Namespace, hostname(m))
	d := dataSource{label: "cidata", files: map[string]content{"user-data": userData(s), "meta-data": {inline: meta}}}
	if c, ok := networkData(s); ok {
		d.files["network-config"] = c
	}
	return d
}

// configDrive is OpenStack's config drive.
func configDrive(m launch.Machine, s *kubevirt.CloudInitSource) dataSource {
	meta, _ := json.Marshal(map[string]string{ // strings only: cannot fail
		"instance_id": m.Name + "." + m.Namespace, "uuid": machineUUID(m), "hostname": hostname(m)})
	d := dataSource{label: "config-2", files: map[string]content{
		"openstack/latest/user_data": userData(s), "openstack/latest/meta_data.json": {inline: string(meta)}}}
	if c, ok := networkData(s); ok {
		d.files["openstack/latest/network_data.json"] = c
	}
	return d
}

func hostname(m launch.Machine) string {
	if m.Spec.Hostname != "" {
		return m.Spec.Hostname
	}
	return m.Name
}
