package controller

// judges says whether API servers ask the controller about what they are about to store.
func (o *Options) judges() bool { return o.rollouts && o.conversion.on() }
