package cluster

import "k8s.io/apimachinery/pkg/util/version"

// AdmissionPolicies says whether an API server of this version has ValidatingAdmissionPolicies, as v1.30 and later do; they
// then also know the node of the pod that a token was made for (ServiceAccountTokenPodNodeInfo). One of an unknown version has none.
func AdmissionPolicies(kubernetes string) bool {
	v, err := version.ParseGeneric(kubernetes)
	return err == nil && v.AtLeast(version.MajorMinor(1, 30))
}

// Minor is the minor release of a version, such as 3.31 of v3.31.4; nil where the text is no version.
func Minor(text string) *version.Version {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil
	}
	return version.MajorMinor(v.Major(), v.Minor())
}
