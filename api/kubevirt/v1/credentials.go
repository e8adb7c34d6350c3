package v1

// AccessCredential is a public key or a password that opens the guest.
type AccessCredential struct {
	SSHPublicKey *SSHPublicKeyAccess `json:"sshPublicKey,omitempty"`
	UserPassword *UserPasswordAccess `json:"userPassword,omitempty"`
}

// SSHPublicKeyAccess are public keys for SSH.
type SSHPublicKeyAccess struct {
	Source            CredentialSource  `json:"source"`
	PropagationMethod SSHKeyPropagation `json:"propagationMethod"`
}

// UserPasswordAccess are passwords of users.
type UserPasswordAccess struct {
	Source            CredentialSource    `json:"source"`
	PropagationMethod PasswordPropagation `json:"propagationMethod"`
}

// CredentialSource is where keys or passwords are.
type CredentialSource struct {
	// Secret that has them: each of its values is a key, or the password of the user that its name is.
	Secret *CredentialSecret `json:"secret,omitempty"`
}

// CredentialSecret names a Secret.
type CredentialSecret struct {
	// SecretName is a Secret in the machine's namespace.
	SecretName string `json:"secretName"`
}

// SSHKeyPropagation is how keys come into the guest.
type SSHKeyPropagation struct {
	// ConfigDrive has cloud-init add them, from the machine's volume cloudInitConfigDrive, when the guest first starts.
	ConfigDrive *CloudInitPropagation `json:"configDrive,omitempty"`
	// NoCloud has cloud-init add them, from the machine's volume cloudInitNoCloud, when the guest first starts.
	NoCloud *CloudInitPropagation `json:"noCloud,omitempty"`
	// QemuGuestAgent has the guest agent set them while the guest runs, again when the Secret changes. The users have no other keys then.
	QemuGuestAgent *AgentSSHKeyPropagation `json:"qemuGuestAgent,omitempty"`
}

// CloudInitPropagation has no settings.
type CloudInitPropagation struct{}

// AgentSSHKeyPropagation names the users that the keys are for.
type AgentSSHKeyPropagation struct {
	// Users that the keys are for.
	//
	// +listType=set
	Users []string `json:"users"`
}

// PasswordPropagation is how passwords come into the guest.
type PasswordPropagation struct {
	// QemuGuestAgent has the guest agent set them while the guest runs, again when the Secret changes.
	QemuGuestAgent *CloudInitPropagation `json:"qemuGuestAgent,omitempty"`
}

// ByCloudInit reports whether cloud-init adds the keys, from a volume cloudInitNoCloud or from one cloudInitConfigDrive.
func (c *AccessCredential) ByCloudInit(noCloud bool) bool {
	if c.SSHPublicKey == nil || c.SSHPublicKey.Source.Secret == nil {
		return false
	}
	how := c.SSHPublicKey.PropagationMethod
	return noCloud && how.NoCloud != nil || !noCloud && how.ConfigDrive != nil
}

// ByAgent reports whether the guest agent sets the keys or passwords.
func (c *AccessCredential) ByAgent() bool {
	if c.Secret() == "" {
		return false
	}
	if c.UserPassword != nil {
		return c.UserPassword.PropagationMethod.QemuGuestAgent != nil
	}
	return c.SSHPublicKey.PropagationMethod.QemuGuestAgent != nil
}

// Secret is the name of the Secret with the keys or passwords; empty if there is none.
func (c *AccessCredential) Secret() string {
	switch {
	case c.UserPassword != nil && c.UserPassword.Source.Secret != nil:
		return c.UserPassword.Source.Secret.SecretName
	case c.UserPassword == nil && c.SSHPublicKey != nil && c.SSHPublicKey.Source.Secret != nil:
		return c.SSHPublicKey.Source.Secret.SecretName
	}
	return ""
}
