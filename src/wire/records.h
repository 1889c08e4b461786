// Records: the structs that replies have many of. A session with protocol 1 gets a vector of structs, whose size never
// changes. Later protocols send the same bytes with the size of a record. So a record can grow at its end without a new
// protocol: a reader ignores bytes that it does not know, and reads zeros for those that it does not get.
#pragma once

#include <cstring>
#include <span>

#include "wire/message.h"

namespace gshm::core::wire {

// In protocol 1.
template <typename Record>
struct FirstLayout;
template <>
struct FirstLayout<NodeRecord> {
    using Type = NodeRecord1;
};
template <>
struct FirstLayout<OpenRecord> {
    using Type = OpenRecord1;
};
template <>
struct FirstLayout<HolderRecord> {
    using Type = HolderRecord1;
};
template <>
struct FirstLayout<EventRecord> {
    using Type = EventRecord1;
};

// ---- the receiver ----

template <typename Record>
class Records {
public:
    using First = typename FirstLayout<Record>::Type;

    Records(const flatbuffers::Vector<const First*>* first, const flatbuffers::Vector<uint8_t>* sized, size_t bytes)
        : data_(sized != nullptr ? sized->data() : first != nullptr ? first->Data() : nullptr),
          total_bytes_(sized != nullptr ? sized->size() : count(first) * sizeof(First)),
          bytes_(sized != nullptr ? bytes : sizeof(First)) {}

    // Called by decode_reply(): the other functions need it.
    bool is_valid() const {
        if (data_ == nullptr || bytes_ == 0 || total_bytes_ % bytes_ != 0) return false;
        if (bytes_ % alignof(Record) != 0) return false;
        return total_bytes_ == 0 || reinterpret_cast<uintptr_t>(data_) % alignof(Record) == 0;
    }
    size_t size() const { return total_bytes_ / bytes_; }
    Record operator[](size_t i) const {
        Record record;
        const uint8_t* at = data_ + i * bytes_;
        if (bytes_ >= sizeof record) memcpy(static_cast<void*>(&record), at, sizeof record);
        else memcpy(static_cast<void*>(&record), at, bytes_);
        return record;
    }

private:
    const uint8_t* data_;
    size_t total_bytes_;
    size_t bytes_;
};

inline Records<OpenRecord> records_of(const OpenReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}
inline Records<NodeRecord> records_of(const StatReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}
inline Records<NodeRecord> records_of(const ListReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}
inline Records<HolderRecord> records_of(const HoldersReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}
inline Records<NodeRecord> records_of(const UnlinkedReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}
inline Records<HolderRecord> holders_of(const UnlinkedReply& reply) {
    return {reply.holders(), reply.sized_holders(), reply.holder_bytes()};
}
inline Records<EventRecord> records_of(const WatchReply& reply) {
    return {reply.records(), reply.sized(), reply.record_bytes()};
}

// ---- the sender ----

// The fields of a reply for its records: either `first`, or the others.
template <typename Record>
struct RecordFields {
    flatbuffers::Offset<flatbuffers::Vector<const typename FirstLayout<Record>::Type*>> first;
    flatbuffers::Offset<flatbuffers::Vector<uint8_t>> sized;
    uint16_t bytes = 0;
};

template <typename Record>
RecordFields<Record> add_records(flatbuffers::FlatBufferBuilder& builder, uint32_t protocol,
                                 std::span<const Record> records) {
    using First = typename FirstLayout<Record>::Type;
    static_assert(sizeof(Record) >= sizeof(First) && sizeof(Record) % alignof(Record) == 0);
    static_assert(alignof(Record) == alignof(First) && sizeof(Record) <= UINT16_MAX);
    RecordFields<Record> fields;
    if (protocol == 1) {
        builder.StartVector(records.size() * sizeof(First) / alignof(First), alignof(First));
        if constexpr (sizeof(Record) == sizeof(First)) {
            builder.PushBytes(reinterpret_cast<const uint8_t*>(records.data()), records.size_bytes());
        } else {  // a message is built from its end
            for (size_t i = records.size(); i-- > 0;) {
                builder.PushBytes(reinterpret_cast<const uint8_t*>(&records[i]), sizeof(First));
            }
        }
        fields.first = builder.EndVector(records.size());
    } else {
        builder.StartVector(records.size_bytes() / alignof(Record), alignof(Record));
        builder.PushBytes(reinterpret_cast<const uint8_t*>(records.data()), records.size_bytes());
        fields.sized = builder.EndVector(records.size_bytes());
        fields.bytes = sizeof(Record);
    }
    return fields;
}

}  // namespace gshm::core::wire
