"""Leader and follower of one partition: ISR and high watermark. Pure."""
