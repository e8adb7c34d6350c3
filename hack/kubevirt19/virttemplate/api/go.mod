module kubevirt.io/virt-template-api

go 1.26

require (
	k8s.io/apimachinery v0.34.3
	kubevirt.io/api v1.8.0
)
