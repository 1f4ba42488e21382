package cluster

import "k8s.io/apimachinery/pkg/util/version"

// AdmissionPolicies reports whether an API server of this version has ValidatingAdmissionPolicies (v1.30 and later);
// such a server also knows the node of the pod that a token was issued for (ServiceAccountTokenPodNodeInfo). False for
// an unknown version.
func AdmissionPolicies(kubernetes string) bool {
	v, err := version.ParseGeneric(kubernetes)
	return err == nil && v.AtLeast(version.MajorMinor(1, 30))
}

// Minor is the minor release of a version, such as 3.31 for v3.31.4; nil if the text is not a version.
func Minor(text string) *version.Version {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil
	}
	return version.MajorMinor(v.Major(), v.Minor())
}
