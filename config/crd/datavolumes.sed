# The spec's rules, at the end of the spec.
/^          status:/i\
            x-kubernetes-validations:\
            - message: 'Cannot update DataVolume Spec: what a volume is filled from does not change; make another volume'\
              rule: has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)\
            - message: 'Cannot update DataVolume Spec: what a volume is filled from does not change; make another volume'\
              rule: has(self.sourceRef) == has(oldSelf.sourceRef) && (!has(self.sourceRef) || self.sourceRef == oldSelf.sourceRef)
