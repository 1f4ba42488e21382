package rigtest

// FeatureFlags is a minimal version of open-feature-operator's CRD: it keeps all fields of flagSpec.
const FeatureFlags = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: featureflags.core.openfeature.dev}
spec:
  group: core.openfeature.dev
  scope: Namespaced
  names: {kind: FeatureFlag, plural: featureflags, singular: featureflag, listKind: FeatureFlagList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              flagSpec: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
