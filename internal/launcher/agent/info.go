package agent

import (
	"errors"
	"fmt"

	libvirt "github.com/digitalocean/go-libvirt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// ErrNoAgent is the error of questions that no agent answers.
var ErrNoAgent = errors.New("the guest has no agent that answers")

// The bounds of what is read of an agent's answer: a hostile guest could send lists and texts of any length. Within them everything fits into a
// launcherapi.Said.
const (
	mostListed = 100
	mostText   = 256
	mostDisks  = 8
)

// short returns as much of a text as is kept.
func short(s string) string { return s[:min(len(s), mostText)] }

// few returns as much of a list as is kept.
func few[T any](list []T) []T { return list[:min(len(list), mostListed)] }

// Query asks the agent a question. It returns ErrNoAgent if no agent answers, and another error if the agent does not know the question.
func (r Agent) Query(command string, answer any) error {
	err := r.Guest.AskAgent(command, nil, answer)
	var e libvirt.Error
	if errors.As(err, &e) && (e.Code == uint32(libvirt.ErrAgentUnresponsive) || e.Code == uint32(libvirt.ErrAgentUnsynced) ||
		e.Code == uint32(libvirt.ErrOperationTimeout)) {
		return fmt.Errorf("%w: %s", ErrNoAgent, e.Message)
	}
	return err
}

// OsInfo returns what the agent knows about the guest's system. Every agent knows its version; what it does not know is left out.
func (r Agent) OsInfo() (*kubevirt.GuestAgentInfo, error) {
	var about struct {
		Version  string                  `json:"version"`
		Commands []kubevirt.GuestCommand `json:"supported_commands"`
	}
	if err := r.Query("guest-info", &about); err != nil {
		return nil, err
	}
	out := &kubevirt.GuestAgentInfo{GAVersion: short(about.Version)}
	for _, c := range few(about.Commands) {
		out.SupportedCommands = append(out.SupportedCommands, kubevirt.GuestCommand{Name: short(c.Name), Enabled: c.Enabled})
	}
	var host struct {
		Name string `json:"host-name"`
	}
	var zone struct {
		Zone string `json:"zone"`
	}
	for command, answer := range map[string]any{"guest-get-host-name": &host, "guest-get-timezone": &zone} {
		if err := r.Query(command, answer); errors.Is(err, ErrNoAgent) {
			return nil, err
		}
	}
	out.Hostname, out.Timezone = short(host.Name), short(zone.Zone)
	var err error
	if out.OS, err = r.os(); errors.Is(err, ErrNoAgent) {
		return nil, err
	}
	if u, err := r.Users(); err == nil {
		out.UserList = u.Items
	}
	if f, err := r.Filesystems(); err == nil {
		out.FSInfo.Filesystems = f.Items
	}
	return out, nil
}

// os returns the guest's operating system.
func (r Agent) os() (kubevirt.GuestOS, error) {
	var is struct {
		ID            string `json:"id"`
		Name          string `json:"name"`
		PrettyName    string `json:"pretty-name"`
		Version       string `json:"version"`
		VersionID     string `json:"version-id"`
		Machine       string `json:"machine"`
		KernelRelease string `json:"kernel-release"`
		KernelVersion string `json:"kernel-version"`
	}
	err := r.Query("guest-get-osinfo", &is)
	return kubevirt.GuestOS{
		ID: short(is.ID), Name: short(is.Name), PrettyName: short(is.PrettyName), Version: short(is.Version), VersionID: short(is.VersionID),
		Machine: short(is.Machine), KernelRelease: short(is.KernelRelease), KernelVersion: short(is.KernelVersion),
	}, err
}

// Users returns the users who are logged in to the guest.
func (r Agent) Users() (*kubevirt.GuestUserList, error) {
	var list []struct {
		User   string  `json:"user"`
		Domain string  `json:"domain"`
		Login  float64 `json:"login-time"`
	}
	if err := r.Query("guest-get-users", &list); err != nil {
		return nil, err
	}
	out := &kubevirt.GuestUserList{Items: []kubevirt.GuestUser{}}
	for _, u := range few(list) {
		out.Items = append(out.Items, kubevirt.GuestUser{UserName: short(u.User), Domain: short(u.Domain), LoginTime: u.Login})
	}
	return out, nil
}

// Filesystems returns the guest's mounted filesystems.
func (r Agent) Filesystems() (*kubevirt.GuestFilesystemList, error) {
	var list []struct {
		Name       string `json:"name"`
		MountPoint string `json:"mountpoint"`
		Type       string `json:"type"`
		Used       int64  `json:"used-bytes"`
		Total      int64  `json:"total-bytes"`
		Disk       []struct {
			Serial string `json:"serial"`
			Bus    string `json:"bus-type"`
		} `json:"disk"`
	}
	if err := r.Query("guest-get-fsinfo", &list); err != nil {
		return nil, err
	}
	out := &kubevirt.GuestFilesystemList{Items: []kubevirt.GuestFilesystem{}}
	for _, f := range few(list) {
		one := kubevirt.GuestFilesystem{
			DiskName: short(f.Name), MountPoint: short(f.MountPoint), FileSystemType: short(f.Type), UsedBytes: f.Used, TotalBytes: f.Total,
		}
		for _, d := range f.Disk[:min(len(f.Disk), mostDisks)] {
			one.Disk = append(one.Disk, kubevirt.GuestFilesystemDisk{Serial: short(d.Serial), BusType: short(d.Bus)})
		}
		out.Items = append(out.Items, one)
	}
	return out, nil
}
