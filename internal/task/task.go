// Package task is the contract between the controller and a worker: one Task goes in as a mounted file, one Report
// comes out as the container's termination message, and Progress is one JSON document on one HTTP path meanwhile.
//
// It is plain data (standard library only), so neither side can reach the other's machinery through it. It does not
// know Kubernetes objects, and it does not move bytes.
package task

import "encoding/json"

// Version is the version of this contract. A worker refuses a Task of another version: the two are always rolled out
// from one image, so a mismatch is a broken deployment and never something to guess about.
const Version = 1

// Where a worker finds its Task, leaves its Report and shows its Progress.
const (
	TaskPath     = "/etc/berth/task.json"
	ReportPath   = "/dev/termination-log"
	ProgressPort = 8080
	ProgressPath = "/progress"
)

// Task is everything a worker needs to know. Secrets are never in it: it names the directories they are mounted at.
type Task struct {
	Version int    `json:"version"`
	Volume  string `json:"volume"` // namespace/name, for messages only
	// Claim is the UID of the claim that is filled: what an earlier claim of the same name left is not continued.
	Claim  string `json:"claim,omitempty"`
	Source Source `json:"source"`
	Target Target `json:"target"`
	// Checksum is "algorithm:hex" of the bytes as they are at the source; empty means unchecked.
	Checksum string `json:"checksum,omitempty"`
	// Raw says that the source's bytes are the disk: they are neither decompressed nor looked at for a format.
	Raw bool `json:"raw,omitempty"`
	// Early has the disk served to its guest while it is being filled, if its image allows that.
	Early bool `json:"early,omitempty"`
	// Checkpoint makes this one stage of several, which bring a disk while it is still in use elsewhere.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Checkpoint is one stage of an import. The first brings the disk as it was at a checkpoint; each other one what changed since the checkpoint
// before, which is written over the disk that is there.
type Checkpoint struct {
	Previous string `json:"previous,omitempty"` // the checkpoint that the disk has to be at; empty: the whole disk is brought
	Current  string `json:"current"`            // the checkpoint that it is at afterwards
}

// Source says where the bytes come from. Exactly one field is set.
type Source struct {
	HTTP     *HTTP     `json:"http,omitempty"`
	S3       *S3       `json:"s3,omitempty"`
	GCS      *GCS      `json:"gcs,omitempty"`
	Registry *Registry `json:"registry,omitempty"`
	Blank    *Blank    `json:"blank,omitempty"`
	Upload   *Upload   `json:"upload,omitempty"`
	Local    *Local    `json:"local,omitempty"`
	Peer     *Peer     `json:"peer,omitempty"`
	Backup   *Backup   `json:"backup,omitempty"`
	Chain    *Chain    `json:"chain,omitempty"`
}

// IsFile reports whether the source is a file that a server hands out as it is, so that it may be anything.
func (s Source) IsFile() bool { return s.HTTP != nil || s.S3 != nil || s.GCS != nil }

// Access holds the credentials for a server and the authorities to verify it with. Every field may be empty.
type Access struct {
	CredentialsDir string `json:"credentialsDir,omitempty"` // files accessKeyId and secretKey, as in a CDI secret
	CADir          string `json:"caDir,omitempty"`          // every file in it is PEM, trusted besides the system's roots
	Insecure       bool   `json:"insecure,omitempty"`       // do not verify the server's certificate
	HTTPProxy      string `json:"httpProxy,omitempty"`
	HTTPSProxy     string `json:"httpsProxy,omitempty"`
	NoProxy        string `json:"noProxy,omitempty"`
}

// HTTP is an http:// or https:// URL.
type HTTP struct {
	URL        string   `json:"url"`
	Headers    []string `json:"headers,omitempty"`    // "Name: value"
	HeadersDir string   `json:"headersDir,omitempty"` // every file in it holds one "Name: value"
	Access
}

// S3 is an object in a bucket; URL is http(s)://host/bucket/key or s3://bucket/key.
type S3 struct {
	URL string `json:"url"`
	Access
}

// GCS is an object in a bucket; URL is gs://bucket/key or an https URL of one.
type GCS struct {
	URL string `json:"url"`
	Access
}

// Registry is a container image that has a disk under /disk/.
type Registry struct {
	URL          string `json:"url"` // docker://host/name:tag or oci-archive:///path
	Architecture string `json:"architecture,omitempty"`
	PlainHTTP    bool   `json:"plainHTTP,omitempty"` // an insecure registry: http, or a certificate nobody signed
	Access
}

// Blank is an empty disk: the target's own size, all zeroes.
type Blank struct{}

// Upload makes the worker a server that waits for the bytes.
type Upload struct {
	Listen      string `json:"listen"` // host:port
	TLSDir      string `json:"tlsDir,omitempty"`
	ClientCADir string `json:"clientCADir,omitempty"` // clients must present a certificate signed by one of these
	ClientName  string `json:"clientName,omitempty"`  // and bear this common name
	TokenDir    string `json:"tokenDir,omitempty"`    // file token: a bearer token, for the stand-alone upload pod
}

// Local is a disk the worker can open itself: another claim mounted in the same pod, or a file.
type Local struct {
	// Path is a file, a block device, or a directory when the content is an archive. When it is a volume, it is the volume's disk,
	// which need not be there.
	Path string `json:"path"`
	Raw  bool   `json:"raw,omitempty"` // the bytes are the disk: never look for a format in a tenant's volume
}

// Peer is another worker that serves a volume (see Serve), spoken to over mutual TLS.
type Peer struct {
	URL    string `json:"url"`
	TLSDir string `json:"tlsDir"` // tls.crt, tls.key, ca.crt
}

// Backup is a disk in a set of backups (docs/reference/backup-format.md), as it was at a checkpoint.
type Backup struct {
	// Set is the set's directory: local, or the address at a server that the paths of files in it are added to.
	Set Source `json:"set"`
	// Path is the directory of the set in a local one, below which no link leads elsewhere.
	Path       string `json:"path,omitempty"`
	Checkpoint string `json:"checkpoint"`
	Disk       string `json:"disk"`
	Manifest   string `json:"manifest,omitempty"` // "sha256:..." of the checkpoint's manifest; empty: unchecked
}

// Chain is a disk in several qcow2 files: a whole one and increments of it, in this order.
type Chain struct {
	Files []Source `json:"files"`
	Raw   bool     `json:"raw,omitempty"` // the first file is the disk as it is
}

// Serve is the other end of Peer: what a clone's source worker is given instead of a Task.
type Serve struct {
	Version int     `json:"version"`
	Volume  string  `json:"volume"`
	Path    string  `json:"path"` // a block device (Disk), or a directory (Volume)
	Content Content `json:"content"`
	Listen  string  `json:"listen"`
	TLSDir  string  `json:"tlsDir"`
}

// Export is the task of a worker from which people download volumes, over TLS and with a token.
type Export struct {
	Version  int              `json:"version"`
	Volumes  []ExportedVolume `json:"volumes"`
	Listen   string           `json:"listen"`
	TLSDir   string           `json:"tlsDir"`   // tls.crt, tls.key
	TokenDir string           `json:"tokenDir"` // file token
	// Manifests are Kubernetes objects, one each, that import the volumes elsewhere; HeaderSecret is the name of the Secret with
	// the token that they expect, which is rendered on request.
	Manifests    []json.RawMessage `json:"manifests,omitempty"`
	HeaderSecret string            `json:"headerSecret,omitempty"`
}

// ExportedVolume is one that can be downloaded.
type ExportedVolume struct {
	Name    string  `json:"name"`
	Path    string  `json:"path"` // a file, a block device, or a directory when the content is an archive
	Content Content `json:"content"`
}

// Content is the kind of content of the volume.
type Content string

// The contents a volume can hold. Disk is one guest disk; Archive is a directory of files unpacked from a tar; Volume is everything on a
// filesystem that is cloned: all files, and DiskFile among them is a guest's disk.
const (
	Disk    Content = "disk"
	Archive Content = "archive"
	Volume  Content = "volume"
)

// DiskFile is the name that a guest's disk has on a filesystem.
const DiskFile = "disk.img"

// Target says where the bytes go.
type Target struct {
	// Path is a block device (Disk), a file to be made (Disk) or a directory (Archive, Volume).
	Path    string  `json:"path"`
	Content Content `json:"content"`
	// Size is how large the disk must be at the end, in bytes. 0 means as large as the image. A device is its own size, and must not
	// be smaller. If the whole filesystem is smaller than this, because of its own overhead, the file becomes as large as fits; if it
	// is only too full, the disk does not fit.
	Size        int64 `json:"size,omitempty"`
	Preallocate bool  `json:"preallocate,omitempty"`
}

// Outcome says how a worker ended.
type Outcome string

// The outcomes. Retry is worth another try as it is; Fatal never succeeds until a person changes something.
const (
	Done  Outcome = "Done"
	Retry Outcome = "Retry"
	Fatal Outcome = "Fatal"
)

// Report is the result that a worker leaves when it ends. Exit code 0 goes with Done and only with Done.
type Report struct {
	Version int     `json:"version"`
	Outcome Outcome `json:"outcome"`
	Reason  Reason  `json:"reason"`
	Detail  string  `json:"detail,omitempty"` // one line for a person: the source, what was wrong, what to do
	Format  string  `json:"format,omitempty"` // what the image turned out to be, "qcow2.gz"
	Digest  string  `json:"digest,omitempty"` // "sha256:…" of the source's bytes where they were all seen
	Read    int64   `json:"read,omitempty"`   // bytes fetched from the source
	Written int64   `json:"written,omitempty"`
	Virtual int64   `json:"virtual,omitempty"` // size of the disk
	Resumed int64   `json:"resumed,omitempty"` // bytes an earlier run had done already
	// Labels come with the image (container disks carry KUBEVIRT_IO_ environment) and belong on the claim.
	Labels map[string]string `json:"labels,omitempty"`
	// Upload is the id of the upload that was received.
	Upload string `json:"upload,omitempty"`
	// Backup is the backup that was written.
	Backup *Written `json:"backup,omitempty"`
}

// Progress is the document at ProgressPath.
type Progress struct {
	Version int     `json:"version"`
	Stage   Stage   `json:"stage"`
	Done    int64   `json:"done"`    // bytes
	Total   int64   `json:"total"`   // bytes; 0 when unknown
	Percent float64 `json:"percent"` // 0 to 100, never falls, and 100 only when the data is on stable storage
	Rate    int64   `json:"rate"`    // bytes a second over the last few seconds
	// Trouble says why the last upload failed, while another is waited for.
	Trouble string `json:"trouble,omitempty"`
	// Early is nil if the disk is not to be served before it is full.
	Early *Early `json:"early,omitempty"`
}

// Early describes a disk that is served to its guest while it is being filled.
type Early struct {
	Serves  bool   `json:"serves,omitempty"`
	Clients int    `json:"clients,omitempty"` // that use it
	Cannot  string `json:"cannot,omitempty"`  // why it is not served, in words
	Away    string `json:"away,omitempty"`    // why the source is waited for; empty: it answers
}

// Stage is the current stage of a worker.
type Stage string

// The stages in the order they come.
const (
	Connecting   Stage = "Connecting"
	Waiting      Stage = "Waiting" // for an upload to begin
	Transferring Stage = "Transferring"
	Flushing     Stage = "Flushing"
	Finished     Stage = "Finished"
)
