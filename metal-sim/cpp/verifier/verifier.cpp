#ifdef METAL_SIM_VERIFIER

#    include "verifier.h"

#    include "../runtime/compute_dispatch.h"
#    include "../runtime/guarded_memory.h"
#    include "../runtime/kernel.h"
#    include "contexts.h"
#    include "control.h"
#    include "findings.h"
#    include "hooks.h"
#    include "module.h"
#    include "ordering.h"
#    include "regions.h"
#    include "traffic.h"

#    include <algorithm>
#    include <atomic>
#    include <cstdio>
#    include <cstring>
#    include <deque>
#    include <mutex>

namespace metal_sim {
namespace verifier {

own_stack stack_of_lane;

namespace {

// Read by another thread than the one that runs kernels.
std::atomic<uint64_t> bytes_read{ 0 };
std::atomic<uint64_t> bytes_written{ 0 };

// There is one writer.
void count(std::atomic<uint64_t> & sum, size_t size) {
    sum.store(sum.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
}

// A dispatch, as far as a later one may have to name it.
struct past_dispatch {
    const char * kernel;
    extent3      grid;
};

constexpr size_t max_past_dispatches = 64 * 1024;

// A race at a write: known for one of equal values only once the write has happened.
struct undecided {
    metal_sim_finding     finding;
    const unsigned char * address = nullptr;
    size_t                size    = 0;
    unsigned char         old[64];
};

uint32_t detector_of(conflict c) {
    switch (c) {
    case conflict::none: return 0;
    case conflict::simdgroup: return METAL_SIM_RACE_SIMDGROUP;
    case conflict::threadgroup: return METAL_SIM_RACE_THREADGROUP;
    case conflict::grid: return METAL_SIM_RACE_GRID;
    case conflict::dispatch: return METAL_SIM_RACE_DISPATCH;
    }
    return 0;
}

void set_group(metal_sim_place & place, uint32_t index, const extent3 & grid) {
    place.threadgroup[0] = index % grid.x;
    place.threadgroup[1] = index / grid.x % grid.y;
    place.threadgroup[2] = index / grid.x / grid.y;
}

// Nobody has written there, and what is there is poison.
void make_fresh(const memory_extent & e) {
    poison(e.begin, e.size);
    std::memset(e.begin, poison_byte, e.size);
}

bool is_write(access_kind kind) {
    return kind == access_kind::write || kind == access_kind::atomic_write;
}

bool is_atomic(access_kind kind) {
    return kind == access_kind::atomic_read || kind == access_kind::atomic_write;
}

class checker {
  public:
    checker() : now_{ contexts_, clocks_ } { undecided_.reserve(4); }

    void begin_segment();
    void begin_dispatch(const kernel_entry & kernel, const compute_dispatch & d, const void * internal, size_t size);
    void end_dispatch();
    void begin_threadgroup(uint64_t index, uint32_t lanes);
    void enter_lane(const lane & l, const unsigned char * stack, const unsigned char * stack_end);
    void threadgroup_synchronised(uint32_t memory);
    void simdgroup_synchronised(const simdgroup_state & simdgroup, uint32_t memory);
    void diverged(source_position at, uint32_t lane, uint32_t other);
    void begin_simdgroup_access(const void * pc);
    void end_simdgroup_access();

    void check(const unsigned char * address, size_t size, const void * pc, access_kind kind);
    bool last_writer(uintptr_t address, char * kernel, size_t capacity, metal_sim_place & place) const;

    regions where;

  private:
    void check_read(const region & r, const unsigned char * address, size_t size, uint32_t pc, bool atomic);
    void check_write(const region & r, const unsigned char * address, size_t size, uint32_t pc, bool atomic);
    void outside(const unsigned char * address, size_t size, uint32_t pc, access_kind kind);

    metal_sim_finding make(uint32_t detector, uint32_t pc, access_kind kind) const;
    void              locate(metal_sim_finding & f, const region & r, const unsigned char * address, size_t size) const;
    void              locate_tensor(metal_sim_finding & f, const unsigned char * address) const;
    void              describe(metal_sim_place & place, uint32_t pc, uint32_t number, access_kind kind) const;
    metal_sim_finding race(conflict c, const region & r, const unsigned char * address, size_t size, uint32_t pc,
                           access_kind kind, cell other, access_kind other_kind) const;
    void              decide_later(const metal_sim_finding & f, const unsigned char * address, size_t size);
    void              decide();

    const past_dispatch * find_dispatch(uint32_t number) const {
        return number < first_dispatch_ || number >= next_dispatch_ ? nullptr : &dispatches_[number - first_dispatch_];
    }

    const ordering & order(const region & r) const { return r.shared ? shared_order_ : device_order_; }

    contexts         contexts_;
    simdgroup_clocks clocks_;
    ordering         device_order_;
    ordering         shared_order_;

    std::deque<past_dispatch> dispatches_;
    uint32_t                  first_dispatch_ = 0;
    uint32_t                  next_dispatch_  = 0;

    const kernel_entry *     kernel_   = nullptr;
    const compute_dispatch * dispatch_ = nullptr;
    uint32_t                 group_    = 0;

    accessor     now_;
    const lane * lane_         = nullptr;
    uint32_t     current_      = 0;  // context
    uint32_t     of_lane_      = 0;  // the lane's own context
    uint32_t     of_simdgroup_ = 0;  // the one in which the lane acts for its simdgroup; 0: none yet
    uint32_t     fixed_pc_     = 0;  // 0: the access's own

    std::vector<undecided> undecided_;
};

checker & the() {
    static checker & c = *new checker;  // as long as the module is there, kernels may run
    return c;
}

// Segments exclude each other: dispatches of two encoders are not to be taken for one segment's.
std::mutex & segment_lock() {
    static std::mutex & m = *new std::mutex;
    return m;
}

// ---- what runs

void checker::begin_segment() {
    if (contexts_.exhausted()) {
        for_each_memory([](device_memory_shadow & m) { m.bytes.forget_accesses(); });
        where.forget_shared_accesses();
        contexts_.restart();
    }
    device_order_.segment = contexts_.next();
}

void checker::begin_dispatch(const kernel_entry & kernel, const compute_dispatch & d, const void * internal,
                             size_t size) {
    kernel_   = &kernel;
    dispatch_ = &d;
    dispatches_.push_back({ kernel.name, d.threadgroups });
    ++next_dispatch_;
    if (dispatches_.size() > max_past_dispatches) {
        dispatches_.pop_front();
        ++first_dispatch_;
    }
    device_order_.dispatch = contexts_.next();

    std::vector<region> internals(3);
    const auto          set = [](region & r, const void * begin, size_t length) {
        r.begin = static_cast<const unsigned char *>(begin);
        r.end   = r.begin + length;
    };
    set(internals[0], internal, size);
    set(internals[1], &d, sizeof(d));
    set(internals[2], &current_lane, sizeof(current_lane));
    for (const module_segment & s : module_segments()) {
        internals.emplace_back();
        set(internals.back(), s.begin, s.size);
    }
    where.begin_dispatch(d, internals);

    for (const memory_extent & e : d.extents) {
        if (e.fresh != nullptr && *e.fresh) {
            *e.fresh = false;
            make_fresh(e);
        }
    }
}

void checker::end_dispatch() {
    decide();
    stack_of_lane = own_stack();
    lane_         = nullptr;
}

void checker::begin_threadgroup(uint64_t index, uint32_t lanes) {
    decide();
    contexts_.trim();
    group_              = static_cast<uint32_t>(index);
    device_order_.group = device_order_.epoch = contexts_.next();
    shared_order_.segment = shared_order_.dispatch = shared_order_.group = shared_order_.epoch = contexts_.next();
    device_order_.simdgroup.fill(0);
    shared_order_.simdgroup.fill(0);
    clocks_.reset(lanes);
    where.begin_threadgroup();
}

void checker::enter_lane(const lane & l, const unsigned char * stack, const unsigned char * stack_end) {
    decide();
    lane_               = &l;
    now_.lane           = l.index_in_threadgroup;
    current_ = of_lane_ = contexts_.add({ next_dispatch_ - 1, group_, now_.lane, clocks_.own(now_.lane) });
    of_simdgroup_       = 0;
    fixed_pc_           = 0;
    stack_of_lane.begin = reinterpret_cast<uintptr_t>(stack);
    stack_of_lane.size  = static_cast<uintptr_t>(stack_end - stack);
}

void checker::begin_simdgroup_access(const void * pc) {
    if (of_simdgroup_ == 0) {
        const uint32_t lane = lane_->simdgroup->first_lane | whole_simdgroup;
        of_simdgroup_ = contexts_.add({ next_dispatch_ - 1, group_, lane, clocks_.own(lane_->index_in_threadgroup) });
    }
    current_  = of_simdgroup_;
    now_.lane = lane_->simdgroup->first_lane | whole_simdgroup;
    fixed_pc_ = pc != nullptr ? module_offset(pc) : 0;
}

void checker::end_simdgroup_access() {
    current_  = of_lane_;
    now_.lane = lane_->index_in_threadgroup;
    fixed_pc_ = 0;
}

// ---- what orders

void checker::threadgroup_synchronised(uint32_t memory) {
    decide();
    if ((memory & memory_device) != 0) {
        device_order_.epoch = contexts_.next();
    }
    if ((memory & memory_threadgroup) != 0) {
        shared_order_.epoch = contexts_.next();
    }
}

// A lane that has returned is not ordered by where others meet.
void checker::simdgroup_synchronised(const simdgroup_state & simdgroup, uint32_t memory) {
    decide();
    const uint32_t index = simdgroup.first_lane / simd_width;
    if (simdgroup.members != simdgroup.all_lanes()) {
        clocks_.meet(simdgroup.first_lane, simdgroup.members);
        return;
    }
    if ((memory & memory_device) != 0) {
        device_order_.simdgroup[index] = contexts_.next();
    }
    if ((memory & memory_threadgroup) != 0) {
        shared_order_.simdgroup[index] = contexts_.next();
    }
}

void checker::diverged(source_position at, uint32_t lane, uint32_t other) {
    metal_sim_finding f = {};
    f.detector          = METAL_SIM_DIVERGENT_BARRIER;
    copy_text(f.kernel, kernel_->name);
    copy_text(f.file, at.file);
    f.line  = at.line;
    f.block = -1;
    set_group(f.at, group_, dispatch_->threadgroups);
    set_group(f.other, group_, dispatch_->threadgroups);
    f.at.lane    = lane;
    f.other.lane = other;
    record(f);
}

// ---- accesses

void checker::check(const unsigned char * address, size_t size, const void * at, access_kind kind) {
    if (!undecided_.empty()) {
        decide();
    }
    const region * const r = where.find(address, size);
    if (r != nullptr && r->bytes == nullptr) {
        return;
    }
    if (r != nullptr && !r->shared) {
        count(is_write(kind) ? bytes_written : bytes_read, size);
    }
    const uint32_t pc = fixed_pc_ != 0 ? fixed_pc_ : module_offset(at);
    if (r == nullptr) {
        outside(address, size, pc, kind);
    } else if (is_write(kind)) {
        check_write(*r, address, size, pc, is_atomic(kind));
    } else {
        check_read(*r, address, size, pc, is_atomic(kind));
    }
}

// Bytes in a row of which the same is known are looked at once.
void checker::check_read(const region & r, const unsigned char * address, size_t size, uint32_t pc, bool atomic) {
    const ordering &  o       = order(r);
    const size_t      first   = static_cast<size_t>(address - r.begin) + r.offset;
    const uint8_t *   written = r.bytes->written + first;
    const cell *      writes  = r.bytes->last_write + first;
    cell *            reads   = r.bytes->last_read + first;
    const cell        mine    = cell::of(current_, pc, readers::one, false);
    const access_kind kind    = atomic ? access_kind::atomic_read : access_kind::read;

    for (size_t i = 0; i < size;) {
        size_t end = i + 1;
        while (end < size && writes[end].bits == writes[i].bits && reads[end].bits == reads[i].bits &&
               written[end] == written[i]) {
            ++end;
        }
        const cell w = writes[i];
        if (written[i] == 0) {
            metal_sim_finding f = make(METAL_SIM_UNINITIALISED, pc, kind);
            locate(f, r, address + i, end - i);
            record(f);
        } else if (w.context() != current_ && w.context() >= o.segment && !(atomic && w.atomic())) {
            const conflict c = judge(o, now_, w);
            if (c != conflict::none) {
                record(race(c, r, address + i, end - i, pc, kind, w,
                            w.atomic() ? access_kind::atomic_write : access_kind::write));
            }
        }
        if (!atomic && reads[i].context() != current_) {
            const cell after = joined(o, now_, reads[i], mine);
            if (after.bits != reads[i].bits) {
                std::fill(reads + i, reads + end, after);
            }
        }
        i = end;
    }
}

void checker::check_write(const region & r, const unsigned char * address, size_t size, uint32_t pc, bool atomic) {
    const ordering &  o       = order(r);
    const size_t      first   = static_cast<size_t>(address - r.begin) + r.offset;
    uint8_t *         written = r.bytes->written + first;
    cell *            writes  = r.bytes->last_write + first;
    const cell *      reads   = r.bytes->last_read + first;
    const cell        mine    = cell::of(current_, pc, readers::one, atomic);
    const access_kind kind    = atomic ? access_kind::atomic_write : access_kind::write;

    for (size_t i = 0; i < size;) {
        size_t end = i + 1;
        while (end < size && writes[end].bits == writes[i].bits && reads[end].bits == reads[i].bits) {
            ++end;
        }
        const cell     w        = writes[i];
        const conflict by_write = w.context() == current_ || (atomic && w.atomic()) ? conflict::none : judge(o, now_, w);
        if (by_write != conflict::none) {
            decide_later(race(by_write, r, address + i, end - i, pc, kind, w,
                              w.atomic() ? access_kind::atomic_write : access_kind::write),
                         address + i, end - i);
        }
        const conflict by_read = judge(o, now_, reads[i]);
        if (by_read != conflict::none) {
            decide_later(race(by_read, r, address + i, end - i, pc, kind, reads[i], access_kind::read), address + i,
                         end - i);
        }
        i = end;
    }
    std::fill(writes, writes + size, mine);
    std::memset(written, 1, size);
}

// A write is stopped before it happens; so is a read that would end the process. Any other read goes on: a GPU survives it,
// and kernels of ggml's drop what they read there.
void checker::outside(const unsigned char * address, size_t size, uint32_t pc, access_kind kind) {
    metal_sim_finding f        = make(METAL_SIM_OUT_OF_BOUNDS, pc, kind);
    bool              readable = false;
    uint32_t          slot     = 0;
    char              what[96] = "memory that is none of the dispatch's";

    f.bytes = size;
    if (const threadgroup_block * const b = where.block_around(address, slot)) {
        f.space      = METAL_SIM_THREADGROUP;
        f.block      = slot < max_threadgroup_memory_bindings ? static_cast<int32_t>(slot) : -1;
        f.offset     = address - b->where.begin;
        f.block_size = static_cast<uint64_t>(b->where.end - b->where.begin);
        readable     = address + size <= b->readable_end;
        copy_text(f.name, b->name);
        std::snprintf(what, sizeof(what), "threadgroup %s %s", f.block >= 0 ? "memory" : "array", f.name);
    } else if (const device_memory_shadow * const m = memory_around(address)) {
        f.space  = METAL_SIM_DEVICE;
        readable = address + size <= m->readable_end;
        locate_tensor(f, address);
        std::snprintf(what, sizeof(what), "buffer %d %s", f.block, f.name);
    }
    record(f);
    if (is_write(kind) || !readable) {
        char message[256];
        std::snprintf(message, sizeof(message), "%s %zu bytes at byte %lld of %s, which has %llu",
                      is_write(kind) ? "writes" : "reads", size, static_cast<long long>(f.offset), what,
                      static_cast<unsigned long long>(f.block_size));
        fail_lane(message, source_position());
    }
}

// ---- findings

metal_sim_finding checker::make(uint32_t detector, uint32_t pc, access_kind kind) const {
    metal_sim_finding f = {};
    f.detector          = detector;
    f.block             = -1;
    copy_text(f.kernel, kernel_->name);
    describe(f.at, pc, current_, kind);
    return f;
}

void checker::describe(metal_sim_place & place, uint32_t pc, uint32_t number, access_kind kind) const {
    place.pc     = pc;
    place.access = is_atomic(kind) ? METAL_SIM_ATOMIC : is_write(kind) ? METAL_SIM_WRITE : METAL_SIM_READ;
    place.lane   = METAL_SIM_UNKNOWN_LANE;

    const context * const c = contexts_.find(number);
    if (c == nullptr) {
        return;
    }
    place.lane = c->index() | ((c->lane & whole_simdgroup) != 0 ? METAL_SIM_WHOLE_SIMDGROUP : 0);
    if (const past_dispatch * const d = find_dispatch(c->dispatch)) {
        set_group(place, c->group, d->grid);
    }
}

void checker::locate(metal_sim_finding & f, const region & r, const unsigned char * address, size_t size) const {
    f.bytes = size;
    if (!r.shared) {
        f.space = METAL_SIM_DEVICE;
        locate_tensor(f, address);
        return;
    }
    f.space       = METAL_SIM_THREADGROUP;
    uint32_t slot = 0;
    if (const threadgroup_block * const b = where.block_around(address, slot)) {
        f.block      = slot < max_threadgroup_memory_bindings ? static_cast<int32_t>(slot) : -1;
        f.offset     = address - b->where.begin;
        f.block_size = static_cast<uint64_t>(b->where.end - b->where.begin);
        copy_text(f.name, b->name);
    }
}

// The smallest tensor that has the byte, or else the one that ends or begins closest to it; and the binding that points
// into it.
void checker::locate_tensor(metal_sim_finding & f, const unsigned char * address) const {
    const memory_extent * best     = nullptr;
    size_t                distance = SIZE_MAX;
    for (const memory_extent & e : dispatch_->extents) {
        const bool   contains = address >= e.begin && address < e.begin + e.size;
        const size_t away     = contains           ? 0 :
                                address < e.begin ? static_cast<size_t>(e.begin - address) :
                                                    static_cast<size_t>(address - (e.begin + e.size)) + 1;
        if (away < distance || (away == distance && best != nullptr && e.size < best->size)) {
            best     = &e;
            distance = away;
        }
    }
    if (best == nullptr) {
        return;
    }
    f.offset     = address - best->begin;
    f.block_size = best->size;
    copy_text(f.name, best->name);

    const unsigned char * closest = nullptr;
    for (uint32_t i = 0; i < max_buffer_bindings; ++i) {
        const unsigned char * const bound = static_cast<const unsigned char *>(dispatch_->buffers[i]);
        if (bound != nullptr && bound >= best->begin && bound < best->begin + best->size &&
            (closest == nullptr || (bound > closest && bound <= address))) {
            closest = bound;
            f.block = static_cast<int32_t>(i);
        }
    }
}

metal_sim_finding checker::race(conflict c, const region & r, const unsigned char * address, size_t size, uint32_t pc,
                                access_kind kind, cell other, access_kind other_kind) const {
    metal_sim_finding f = make(detector_of(c), pc, kind);
    locate(f, r, address, size);
    describe(f.other, other.pc(), other.context(), other_kind);
    const context * const before = contexts_.find(other.context());
    if (other.who() != readers::one && f.other.lane == f.at.lane &&
        std::equal(f.at.threadgroup, f.at.threadgroup + 3, f.other.threadgroup)) {
        f.other.lane = METAL_SIM_UNKNOWN_LANE;  // of several readers the one that is remembered is this lane
    }
    if (c == conflict::dispatch && before != nullptr) {
        const past_dispatch * const d = find_dispatch(before->dispatch);
        copy_text(f.other_kernel, d != nullptr ? d->kernel : "");
    }
    return f;
}

void checker::decide_later(const metal_sim_finding & f, const unsigned char * address, size_t size) {
    undecided u;
    u.finding = f;
    u.address = address;
    u.size    = std::min(size, sizeof(u.old));
    std::memcpy(u.old, address, u.size);
    undecided_.push_back(u);
}

void checker::decide() {
    for (undecided & u : undecided_) {
        u.finding.same_value = std::memcmp(u.old, u.address, u.size) == 0 ? 1 : 0;
        record(u.finding);
    }
    undecided_.clear();
}

bool checker::last_writer(uintptr_t address, char * kernel, size_t capacity, metal_sim_place & place) const {
    const device_memory_shadow * const m = memory_at_host_address(address);
    if (m == nullptr) {
        return false;
    }
    const cell            w = m->bytes.last_write[address - m->base];
    const context * const c = contexts_.find(w.context());
    if (c == nullptr) {
        return false;
    }
    const past_dispatch * const d = find_dispatch(c->dispatch);
    std::snprintf(kernel, capacity, "%s", d != nullptr ? d->kernel : "");
    describe(place, w.pc(), w.context(), w.atomic() ? access_kind::atomic_write : access_kind::write);
    return true;
}

}  // namespace

// ---- the hooks

void begin_segment() {
    segment_lock().lock();
    the().begin_segment();
}

void end_segment() {
    segment_lock().unlock();
}

void begin_dispatch(const kernel_entry & kernel, const compute_dispatch & d, const void * internal, size_t size) {
    the().begin_dispatch(kernel, d, internal, size);
}

void end_dispatch() {
    the().end_dispatch();
}

void begin_threadgroup(uint64_t index, uint32_t lanes) {
    the().begin_threadgroup(index, lanes);
}

void place_threadgroup_memory(uint32_t slot, const char * name, unsigned char * data, size_t size,
                              const unsigned char * readable, const unsigned char * readable_end) {
    the().where.place(slot, name, data, size, readable, readable_end);
}

void forget_threadgroup_memory() {
    the().where.forget_threadgroup_memory();
}

void add_stack(const unsigned char * begin, const unsigned char * end) {
    the().where.add_stack(begin, end);
}

void enter_lane(const lane & l, const unsigned char * stack, const unsigned char * stack_end) {
    the().enter_lane(l, stack, stack_end);
}

void threadgroup_synchronised(source_position at, uint32_t memory) {
    count_barrier(at, false);
    the().threadgroup_synchronised(memory);
}

void simdgroup_synchronised(const simdgroup_state & simdgroup, call_site at, uint32_t memory) {
    if (at.what == collective::simdgroup_barrier) {
        count_barrier(at.at, true);
    } else if (!has_lockstep()) {
        return;
    }
    the().simdgroup_synchronised(simdgroup, memory);
}

void diverged(source_position at, uint32_t lane, uint32_t other_lane) {
    the().diverged(at, lane, other_lane);
}

void begin_simdgroup_access(const void * pc) {
    the().begin_simdgroup_access(pc);
}

void end_simdgroup_access() {
    the().end_simdgroup_access();
}

void check_access(const void * address, size_t size, const void * pc, access_kind kind) {
    the().check(static_cast<const unsigned char *>(address), size, pc, kind);
}

traffic device_traffic() {
    traffic t;
    t.read    = bytes_read.load(std::memory_order_relaxed);
    t.written = bytes_written.load(std::memory_order_relaxed);
    return t;
}

void reset_traffic() {
    bytes_read    = 0;
    bytes_written = 0;
}

}  // namespace verifier
}  // namespace metal_sim

extern "C" {

const char * metal_sim_verifier_module(void) {
    return metal_sim::verifier::module_name();
}

bool metal_sim_verifier_last_writer(const void * address, char * kernel, size_t capacity, metal_sim_place * place) {
    return metal_sim::verifier::the().last_writer(reinterpret_cast<uintptr_t>(address), kernel, capacity, *place);
}
}

#endif
