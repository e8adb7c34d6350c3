// Package claim completes a PersistentVolumeClaim that says only part of what it wants: it chooses the storage class,
// the volume mode, the access modes and the size that suit a virtual machine's disk best on the storage at hand, and
// gives a reason for every field it filled.
//
//	result, err := claim.Complete(claim.FromStorage(volume.Spec.Storage), claim.Cluster{
//		Classes:  classes,
//		Profiles: profiles,
//		Overhead: config.Status.FilesystemOverhead,
//	})
//
// A field the user wrote is never changed, with two exceptions the user asked for: the volume mode FromStorageProfile
// is replaced by a real one, and the size of a disk (FromStorage) becomes the size of a claim that such a disk fits in.
//
// The package is pure and public. It reads no cluster, holds no clock and logs nothing: callers list the classes and
// profiles and decide what to do with the answer. It knows nothing of how a claim is filled with data, and it does not
// validate what Kubernetes validates itself.
package claim
