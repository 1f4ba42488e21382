package rigtest

// FeatureFlags is as much of open-feature-operator's definition as is needed: it keeps what is in flagSpec as it is.
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
