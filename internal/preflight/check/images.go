package check

import (
	"slices"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// HasImage reports whether a node lists an image. A kubelet lists at most 50 by default.
func HasImage(node *corev1.Node, image string) bool {
	wanted := whole(image)
	return slices.ContainsFunc(node.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.ContainsFunc(i.Names, func(name string) bool { return whole(name) == wanted })
	})
}

// whole returns an image's full name, as a runtime knows it: with all defaults, and without a tag before a digest.
func whole(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.String()
}
