module kubevirt.io/virt-template-engine

go 1.26

require (
	k8s.io/apimachinery v0.34.3
	kubevirt.io/api v1.8.0
	kubevirt.io/virt-template-api v0.2.0
)
